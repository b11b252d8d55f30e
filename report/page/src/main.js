/* The page: sections for the chosen rank and step, and the theme. */

import { charts } from "./chart.js";
import { el } from "./dom.js";
import { useKernelLabels } from "./names.js";
import { fillNavigation, markNavigation, watchNavigation } from "./navigation.js";
import { unpackJson } from "./packed.js";
import { breakdownSection } from "./sections/breakdown.js";
import { communicationSection } from "./sections/communication.js";
import { DIFF_SECTIONS } from "./sections/diff.js";
import { findingsSection } from "./sections/findings.js";
import { flameSection } from "./sections/flame.js";
import { idleSection } from "./sections/idle.js";
import { manySection } from "./sections/many.js";
import { servingSection } from "./sections/serving.js";
import { tablesSection } from "./sections/tables.js";
import { jobSection } from "./sections/job.js";
import { kernelsSection } from "./sections/kernels.js";
import { launchesSection } from "./sections/launches.js";
import { memorySection } from "./sections/memory.js";
import { operatorsSection } from "./sections/operators.js";
import { overviewSection, timelineSection, traceSection } from "./sections/overview.js";
import { pathSection } from "./sections/path.js";
import { ranksSection } from "./sections/ranks.js";
import { sourceSection } from "./sections/source.js";
import { $, drawnOnPaper, forgetShown, page } from "./state.js";
import { chooseRank, fillSteps, reportOfStep } from "./steps.js";
import { Theme } from "./theme.js";
import { selectFromAddress } from "./timeline/inspector.js";

/** The sections in page order; a section without content returns null. @type {Section[]} */
const SECTIONS = [
  overviewSection, manySection, timelineSection, findingsSection, jobSection, ranksSection, pathSection, servingSection,
  traceSection, breakdownSection, operatorsSection, sourceSection, flameSection, kernelsSection, idleSection, launchesSection,
  memorySection, communicationSection, tablesSection,
];

let drawings = 0; // each redraw cancels the earlier redraws that are still pending

/** Draw the page for a rank, or for one of its steps. @param {number} at @param {number | null} stepAt */
export async function draw(at, stepAt = null) {
  const { report } = page,
    asked = ++drawings,
    whole = report.ranks[at],
    step = stepAt === null ? null : whole.steps[stepAt],
    shown = step ? await reportOfStep(report, step) : report;
  if (typeof whole.path_rows === "string") whole.path_rows = await unpackJson(whole.path_rows);
  if (asked !== drawings) return; // the user has meanwhile chosen another rank or step
  const rank = shown.ranks[at];
  for (const one of charts) one.instance?.dispose();
  charts.clear();
  forgetShown();
  if (!report.difference) useKernelLabels(whole.analysis.kernel_labels);
  const sections = report.difference ? DIFF_SECTIONS : SECTIONS;
  $("sections").replaceChildren(...sections.map((make) => make(shown, rank)).filter(Boolean));
  fillNavigation();
  if (step) page.timeline?.showStep(step);
  for (const one of charts) one.draw();
  $("subtitle").textContent = [
    ...new Set(Object.values(rank.analysis.devices).map((device) => device.name ?? "unnamed device")),
    ...(step ? [`only ${step.name}`] : []),
  ].join(", ");
  watch();
  selectFromAddress();
  document.documentElement.dataset.step = step ? String(step.number) : "";
}

/** @type {IntersectionObserver | null} */
let watcher = null;

/** Mark the section in view in the navigation. */
function watch() {
  watcher?.disconnect();
  const inView = new Set();
  watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) entry.isIntersecting ? inView.add(entry.target) : inView.delete(entry.target);
      const first = [...document.querySelectorAll("section")].find((node) => inView.has(node));
      markNavigation(first?.id);
    },
    { rootMargin: "-70px 0px -55% 0px" },
  );
  for (const node of document.querySelectorAll("section")) watcher.observe(node);
}

const THEMES = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };

/** @param {keyof typeof THEMES} choice */
function theme(choice) {
  Theme.choice = choice;
  Theme.apply();
  $("theme").textContent = THEMES[choice];
  for (const one of charts) one.draw();
}

/** For printing: use the light theme and the width of a sheet. Paper would cut off a wider canvas. */
function onPaper() {
  document.documentElement.classList.add("paper");
  Theme.paper = true;
  theme(Theme.choice);
  for (const one of drawnOnPaper) one();
  for (const node of document.querySelectorAll("details.more, .finding details")) /** @type {HTMLDetailsElement} */ (node).open = true;
}

function offPaper() {
  document.documentElement.classList.remove("paper");
  Theme.paper = false;
  theme(Theme.choice);
  for (const one of drawnOnPaper) one();
}

export async function start() {
  page.report = JSON.parse($("report").textContent);
  page.draw = draw;
  const { report } = page;
  watchNavigation();
  addEventListener("hashchange", selectFromAddress);
  $("title").textContent = report.title;
  $("footer").textContent =
    `etplus ${report.version} · times include profiler overhead · charts by Apache ECharts`;
  const several = report.ranks.length > 1;
  $("rank-pick").hidden = !several;
  $("rank").append(...report.ranks.map((one, i) => el("option", { value: i }, one.label)));
  $("rank").addEventListener("change", () => chooseRank(Number($("rank").value)));
  $("step").addEventListener("change", () => draw(Number($("rank").value), $("step").value === "" ? null : Number($("step").value)));
  fillSteps(report.ranks[0]);
  const order = /** @type {(keyof typeof THEMES)[]} */ (Object.keys(THEMES));
  $("theme").addEventListener("click", () => theme(order[(order.indexOf(Theme.choice) + 1) % order.length]));
  Theme.system.addEventListener("change", () => Theme.choice === "auto" && theme("auto"));
  addEventListener("beforeprint", onPaper);
  addEventListener("afterprint", offPaper);
  let pending = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = window.setTimeout(() => {
      for (const one of charts) one.instance?.resize();
    }, 120);
  });
  theme("auto");
  await draw(0);
  document.documentElement.dataset.ready = "yes";
}

start();
