/* The page: its sections for the rank chosen, the navigation, the theme. */

const report = JSON.parse(document.getElementById("report").textContent);
const $ = (id) => document.getElementById(id);

function card(heading, note, ...content) {
  const head = heading ? el("h3", {}, heading, small(note)) : null;
  return el("div", { class: "card" }, head, content);
}

/** Cards that take so many of twelve columns each; all of them where there is only one. */
function sideBySide(spans, ...cards) {
  const shown = cards.filter(Boolean);
  shown.forEach((node, i) => node.style.setProperty("--span", shown.length > 1 ? spans[i] : 12));
  return el("div", { class: "columns" }, shown);
}

function section(id, heading, lead, ...content) {
  return el(
    "section",
    { id, "aria-labelledby": `${id}-heading` },
    el("h2", { id: `${id}-heading` }, heading),
    lead ? el("p", { class: "lead" }, lead) : null,
    content,
  );
}

/** Draw everything for a rank, and for one of its steps. */
async function draw(at, stepAt = null) {
  const asked = (draw.asked = (draw.asked ?? 0) + 1),
    whole = report.ranks[at],
    step = stepAt === null ? null : whole.steps[stepAt],
    shown = step ? await reportOfStep(report, step) : report;
  if (typeof whole.path_rows === "string") whole.path_rows = await unpackJson(whole.path_rows);
  if (asked !== draw.asked) return; // something else was chosen meanwhile
  const rank = shown.ranks[at];
  for (const one of charts) one.instance?.dispose();
  charts.clear();
  shownTables.clear();
  drawnOnPaper.clear();
  timeline = cameFrom = null;
  if (!report.difference) useKernelLabels(whole.analysis.kernel_labels);
  const sections = report.difference ? DIFF_SECTIONS : SECTIONS;
  $("sections").replaceChildren(...sections.map((make) => make(shown, rank)).filter(Boolean));
  fillNavigation();
  if (step && timeline) timeline.showStep(step);
  for (const one of charts) one.draw();
  $("subtitle").textContent = [
    ...new Set(Object.values(rank.analysis.devices).map((device) => device.name ?? "unnamed device")),
    ...(step ? [`only ${step.name}`] : []),
  ].join(", ");
  watch();
  selectFromAddress();
  document.documentElement.dataset.step = step ? step.number : "";
}

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

function theme(choice) {
  Theme.choice = choice;
  Theme.apply();
  $("theme").textContent = THEMES[choice];
  for (const one of charts) one.draw();
}

/** For paper: light, and as wide as a page, since a canvas that is wider would be cut off. */
function onPaper() {
  document.documentElement.classList.add("paper");
  Theme.paper = true;
  theme(Theme.choice);
  for (const one of drawnOnPaper) one();
  for (const node of document.querySelectorAll("details.more")) node.open = true;
}

function offPaper() {
  document.documentElement.classList.remove("paper");
  Theme.paper = false;
  theme(Theme.choice);
  for (const one of drawnOnPaper) one();
}

async function start() {
  $("title").textContent = report.title;
  $("footer").textContent =
    `etplus ${report.version} · times are as the profiler recorded them, its own cost included · charts by Apache ECharts`;
  const several = report.ranks.length > 1;
  $("rank-pick").hidden = !several;
  $("rank").append(...report.ranks.map((one, i) => el("option", { value: i }, one.label)));
  $("rank").addEventListener("change", () => chooseRank(Number($("rank").value)));
  $("step").addEventListener("change", () => draw(Number($("rank").value), $("step").value === "" ? null : Number($("step").value)));
  fillSteps(report.ranks[0]);
  const order = Object.keys(THEMES);
  $("theme").addEventListener("click", () => theme(order[(order.indexOf(Theme.choice) + 1) % order.length]));
  Theme.system.addEventListener("change", () => Theme.choice === "auto" && theme("auto"));
  addEventListener("beforeprint", onPaper);
  addEventListener("afterprint", offPaper);
  let pending;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      for (const one of charts) one.instance?.resize();
    }, 120);
  });
  theme("auto");
  await draw(0);
  document.documentElement.dataset.ready = "yes";
}

start();
