/* Findings: one line each, with the gain and a link to the place; a line opens to show evidence and advice. */

import { copied, el, factList, listed, small } from "../dom.js";
import { card, section } from "../layout.js";
import { bare } from "../names.js";
import { $ } from "../state.js";
import { chooseRank } from "../steps.js";
import { jumpTo } from "../timeline/jump.js";
import { ofModule, ofRows, ofLine } from "../timeline/places.js";
import { amountText, numberOf, show, signed } from "../units.js";

/** @type {Record<string, string>} */
const CERTAINTY = {
  confirmed: "the trace shows the problem and its cost",
  inferred: "the trace shows the symptom; this is its usual cause",
  predicted: "the trace shows a sign that often accompanies the problem",
};

/** @type {Section} */
export function findingsSection(report, rank) {
  const { findings } = report;
  if (!findings) return null;
  const ofStep = findings.found.filter(({ where }) => !rank.step || !where.step || where.step === rank.step.name),
    here = ofStep.filter((one) => report.difference || one.gain || one.cost_ns !== null), // findings without an estimated gain or cost are shown as notes
    notes = ofStep.filter((one) => !here.includes(one)).map((one) => one.title),
    first = here.slice(0, findings.first || here.length),
    more = here.slice(first.length),
    rest = more.length
      ? el("details", { class: "more" }, el("summary", {}, `${numberOf(more.length, "smaller problem")}`), more.map((one, i) => findingCard(report, one, first.length + i)))
      : null;
  return section(
    "findings",
    "Findings",
    findingsLead(findings, here),
    first.map((one, i) => findingCard(report, one, i)),
    rest,
    listed("notes", [...notes, ...findings.notes]),
  );
}

/**
 * Number of problems and checks, and the joint gain of the first three.
 * @param {Findings} findings
 * @param {Finding[]} here
 */
function findingsLead({ found, none_reason, looked_for, base_error, makespan_ns, together }, here) {
  const off = base_error ? `Replay error on the recording: ${signed(base_error.makespan)}` : "",
    sum = together ? `the first ${Math.min(3, found.filter((one) => one.gain).length)} together save ${gainText(together, makespan_ns)}` : "";
  const order = here.some((one) => one.gain) ? "largest gain" : "largest cost";
  const count = none_reason
    ? none_reason[0].toUpperCase() + none_reason.slice(1)
    : `${numberOf(here.length, "problem")} found (${numberOf(looked_for.length, "check")}), the ${order} first`;
  return `${[count, sum].filter(Boolean).join("; ")}. ${off ? `${off}.` : ""}`;
}

/** "12.3 ms (8.1 ms to 15 ms), 14 %". @param {Gain} gain @param {number | null} makespan */
function gainText({ ns, low_ns, high_ns }, makespan) {
  const share = makespan ? `, ${show(ns / makespan, "share")} of ${show(makespan, "ns")}` : "";
  return `${show(ns, "ns")} (${show(low_ns, "ns")} to ${show(high_ns, "ns")})${share}`;
}

/** @param {Report} report @param {Finding} finding @param {number} at */
function findingCard(report, finding, at) {
  const { id, title, evidence, certainty, advice, check, command, cost_ns, gain, where } = finding,
    makespan_ns = report.findings?.makespan_ns ?? null,
    replayed = gain?.replayed_ns ?? null,
    node = el("article", { class: "card finding", id: `finding-${at + 1}`, "data-finding": id, "aria-labelledby": `finding-${at + 1}-title` });
  const compared = Boolean(report.difference), // a comparison page has no timeline, and its costs are measured
    /** @type {Go | null} */ go = compared ? null : (place) => (event) => jumpFrom(node, report, finding, place, /** @type {HTMLElement} */ (event.currentTarget));
  const price = rowsOnly([
    compared ? null : gain ? ["Gain", `${gainText(gain, makespan_ns)}${gain.unexplained ? `; the replay does not explain ${show(gain.unexplained, "share")}` : ""}`] : ["Gain", "not replayed"],
    cost_ns === null ? null : ["At stake", show(cost_ns, "ns")],
    ["Certainty", `${certainty}: ${CERTAINTY[certainty] ?? ""}`],
  ]);
  const shared = evidence.every((one) => one.command === evidence[0].command) ? evidence[0].command : null,
    proof = evidence.map(({ text, value, unit, command: shows }) =>
      el("li", {}, text, value === null ? null : el("b", {}, ` ${amountText(value, unit)}`), shared === null ? [" ", commandOf(shows)] : null),
    );
  const chain = chainOf(finding, go),
    left = rowsOnly([...price, chain && ["Where", chain]]),
    right = rowsOnly([
      ["Evidence", el("div", {}, el("ul", { class: "proof" }, proof), shared ? commandOf(shared) : null)],
      ["Try", advice],
      ["Check", check],
      command ? ["What if", el("div", {}, commandOf(command), replayed ? small(` saves ${show(replayed, "ns")} of the recorded time`) : null)] : null,
    ]);
  node.append(
    el(
      "header",
      {},
      el("span", { class: "rank" }, String(at + 1)),
      el("h3", { id: `finding-${at + 1}-title` }, title),
      gain ? el("span", { class: "saves" }, `saves ${show(gain.ns, "ns")}`) : null,
      (go ? placesOf(where) : []).map(([text, place], i) =>
        el("button", { type: "button", class: i ? "other" : "go", title: `${text}, in the timeline`, onclick: go?.(place) }, i ? text : "Show in the timeline"),
      ),
    ),
    el(
      "details",
      {},
      el("summary", {}, "Evidence and what to try"),
      gain ? gainBar(gain, makespan_ns) : null,
      el("div", { class: "halves" }, factList(left), factList(right)),
    ),
  );
  return node;
}

/** @param {(any[] | null | "")[]} rows @returns {any[][]} */
const rowsOnly = (rows) => rows.filter((row) => row !== null && row !== "");

/** A bar of the gain and its interval as shares of the total time. @param {Gain} gain @param {number | null} makespan */
function gainBar({ ns, low_ns, high_ns }, makespan) {
  const part = (/** @type {number} */ value) => `${Math.max(0, Math.min(100, (100 * value) / (makespan || 1))).toFixed(2)}%`;
  return el(
    "div",
    { class: "gain", role: "img", "aria-label": `Gain: ${gainText({ ns, low_ns, high_ns }, makespan)}`, "--gain": part(ns), "--low": part(low_ns), "--high": part(high_ns) },
    el("i", {}),
    el("s", {}),
  );
}

/** A command with a button that copies the command. @param {string} text */
function commandOf(text) {
  const copy = el("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}`, title: "Copy the command" }, "Copy");
  copy.addEventListener("click", async () => {
    copy.textContent = (await copied(text)) ? "Copied" : "Not allowed";
  });
  return el("span", { class: "command" }, el("code", {}, text), copy);
}

/**
 * Places of a finding in the timeline: its longest kernel or call, and its time; the time comes first if the finding has
 * no kernel, operator or stream.
 * @param {Row} where
 * @returns {[string, Place][]}
 */
function placesOf({ kernel, operator, stream, rows, start_ns, end_ns }) {
  const orElse = kernel ? { gpu: true, name: kernel } : operator ? { gpu: false, name: operator } : undefined,
    span = start_ns !== undefined && end_ns !== undefined ? { from: start_ns, to: end_ns } : null,
    /** @type {[string, Place][]} */ places = [];
  if (rows?.length) places.push(["Longest event", { ...ofRows(rows), orElse: orElse ?? span }]);
  if (span) places.push(["Its time", span]);
  return kernel || operator || stream !== undefined ? places : places.reverse();
}

/**
 * Line › module › operator › kernel, as buttons that lead to the place.
 * @param {Finding} finding
 * @param {Go | null} go
 */
function chainOf({ where }, go) {
  const { source, module, operator, kernel, phase, stream, step, rank, rows } = where;
  /** @type {[string, string, Place][]} */
  const parts = [];
  if (source) parts.push(["line", source, { ...ofLine(source), orElse: ofRows(rows ?? []) }]);
  if (module) parts.push(["module", module.replaceAll(" / ", " › "), ofModule(module)]);
  if (operator) parts.push(["operator", operator, { ...ofRows(rows ?? [], false), name: operator, orElse: { gpu: false, name: operator } }]);
  if (kernel) parts.push(["kernel", bare(kernel), { ...ofRows(rows ?? [], true), orElse: { gpu: true, name: kernel } }]);
  const said = [phase, step, stream === undefined ? null : `stream ${stream}`, rank === undefined ? null : `rank ${rank}`].filter(Boolean);
  if (!parts.length && !said.length) return null;
  return el(
    "span",
    { class: "chain" },
    parts.map(([what, text, place]) => {
      const shown = [small(what), el("bdi", { dir: "ltr" }, text)];
      return go
        ? el("button", { type: "button", "data-part": what, title: `${what}: ${text}`, onclick: go(place) }, shown)
        : el("span", { "data-part": what }, shown);
    }),
    said.length ? el("span", { class: "said" }, said.join(" · ")) : null,
  );
}

/**
 * Go to a place of a finding, on the rank of the place.
 * @param {HTMLElement} card
 * @param {Report} report
 * @param {Finding} finding
 * @param {Place} place
 * @param {HTMLElement | null} from
 */
async function jumpFrom(card, report, { where }, place, from) {
  const at = report.ranks.findIndex((one) => one.rank === where.rank);
  if (at >= 0 && report.ranks.length > 1 && Number($("rank").value) !== at) {
    await chooseRank(at);
    from = document.querySelector(`#${card.id} .go`);
  }
  return jumpTo(place, from);
}
