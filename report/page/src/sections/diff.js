/* Two traces or jobs side by side: changes by operator, step, source line and call path. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el, listed, none } from "../dom.js";
import { card, section, sideBySide, tile } from "../layout.js";
import { short } from "../names.js";
import { table, tableCard } from "../table.js";
import { fillOf } from "../theme.js";
import { integers, numberOf, show } from "../units.js";
import { findingsSection } from "./findings.js";

const WORTH_OPENING = 0.03; // branches of the call tree that changed less than this share of the largest change are closed

/** A row with the values of sides A and B as columns: `a_count`, `b_count`. @param {Row} row @returns {Row} */
const flat = ({ a, b, ...row }) => ({ ...row, ...prefixed("a_", a), ...prefixed("b_", b) });

/** @param {string} prefix @param {Row | null} side */
const prefixed = (prefix, side) => Object.fromEntries(Object.entries(side ?? {}).map(([key, value]) => [prefix + key, value]));

/** @param {Report} report */
const differenceOf = (report) => /** @type {Difference} */ (report.difference);

/** @param {Report} report */
function diffOverview(report) {
  const found = differenceOf(report),
    what = found.per_iteration ? "mean step" : "whole trace",
    note = (/** @type {number} */ a, /** @type {number} */ b) => (a ? `${(b / a).toFixed(2)} × A` : "");
  return section(
    "overview",
    "Overview",
    found.per_iteration
      ? `Averages per step, over ${numberOf(found.iterations_a, "step")} in A and ${numberOf(found.iterations_b, "step")} in B.`
      : "Totals over the whole traces.",
    listed("warnings", found.damage),
    el(
      "div",
      { class: "tiles" },
      tile(`GPU time, ${what}: A`, show(found.total_a, "ns"), found.a),
      tile(`GPU time, ${what}: B`, show(found.total_b, "ns"), `${found.b} · ${note(found.total_a, found.total_b)}`),
      tile(`Duration, ${what}: A`, show(found.latency_a, "ns"), found.device_a),
      tile(
        `Duration, ${what}: B`,
        show(found.latency_b, "ns"),
        `${found.device_b} · ${note(found.latency_a, found.latency_b)}`,
      ),
    ),
    changes(found),
  );
}

/** Source lines; lines that call other operators come first. @param {Report} report */
function diffLines(report) {
  const { lines } = differenceOf(report);
  if (!lines.length) return null;
  const onDevice = lines.some((row) => row.a_device_ns || row.b_device_ns);
  return section(
    "lines",
    "Source lines",
    "Lines that call other operators come first. A line that only moved is shown as one row.",
    tableCard(null, null, onDevice ? "lines_device" : "lines_host", lines, { sort: "" }),
  );
}

/** The operators with the greatest losses and gains. @param {Difference} found */
function changes(found) {
  const moved = (/** @type {string[]} */ names, /** @type {1 | -1} */ sign) =>
    names
      .slice(0, 10)
      .map((name) => found.ops.find((row) => row.name === name))
      .filter((row) => row !== undefined)
      .filter((row) => row.change_ns * sign > 0);
  const half = (/** @type {string} */ heading, /** @type {Row[]} */ rows, /** @type {string} */ name) =>
    card(heading, null, rows.length ? table(name, rows, { sort: "", filter: false }) : none("None."));
  return sideBySide(
    [6, 6],
    half("Slower in B", moved(found.losses, 1), "slower"),
    half("Faster in B", moved(found.gains, -1), "faster"),
  );
}

/** @param {Report} report */
function diffIterations(report) {
  const { a, b } = differenceOf(report).iteration_list;
  if (!a.length || !b.length) return null;
  const node = el("div"),
    names = ["A", "B"],
    lists = [a, b],
    count = Math.max(a.length, b.length);
  chart(node, 240, () => ({
    grid: { left: 74, right: 20, top: 14, bottom: 40 },
    tooltip: tooltip(
      (/** @type {any[]} */ items) =>
        tip(
          `step ${items[0].dataIndex}`,
          items
            .map((item) => [item, lists[names.indexOf(item.seriesName)][item.dataIndex]])
            .filter(([, row]) => row)
            .map(([item, row]) => [`${item.seriesName} (${row.name})`, show(row.latency_ns, "ns")]),
        ),
      { trigger: "axis" },
    ),
    xAxis: axis({ type: "category", data: Array.from({ length: count }, (_, k) => String(k)) }),
    yAxis: axis({ type: "value", min: 0, unit: "ns" }),
    series: lists.map((list, i) => ({
      name: names[i],
      type: "bar",
      barMaxWidth: 26,
      itemStyle: { color: fillOf(i) },
      data: list.map((row) => row.latency_ns),
    })),
  }));
  return section(
    "iterations",
    "Steps",
    "Step durations, in order.",
    card(null, null, node, legend(names.map((name, i) => ({ name, color: i })))),
    phasesCard(differenceOf(report).phases),
  );
}

/** Steps of a serving engine by phase. @param {Row[]} phases */
const phasesCard = (phases) =>
  tableCard(
    "Serving steps by phase",
    "mean latency of a step, new tokens per second",
    "diff_phases",
    phases.map(flat),
    { sort: "", filter: false },
  );

/** @param {Report} report */
function diffPaths(report) {
  const found = differenceOf(report);
  if (!found.paths.length) return null;
  const onDevice = found.paths.some((row) => row.a?.device_ns || row.b?.device_ns),
    key = onDevice ? "device_ns" : "host_ns",
    own = onDevice ? "change_launched_ns" : "change_self_ns",
    total = onDevice ? "change_device_ns" : "change_host_ns";
  const rows = found.paths.filter((row) => row[own]).map(flat);
  return section(
    "paths",
    "Call tree",
    `Operators with the same callers in both traces, by ${onDevice ? "the GPU time of the work that they launch" : "CPU time"}.`,
    card(
      "Changes by call path",
      onDevice ? "GPU time of the work that the call itself launches" : "CPU time of the call itself",
      table(onDevice ? "paths_device" : "paths_host", rows, { sort: own }),
    ),
    card(
      "The tree",
      found.paths_left_out ? `${numberOf(found.paths_left_out, "smaller path")} not shown` : null,
      tree(found.paths, key, total),
    ),
  );
}

/**
 * Nested lists that open and close, from rows in depth-first order.
 * @param {Row[]} rows
 * @param {string} key
 * @param {string} total
 */
export function tree(rows, key, total) {
  const root = el("div", { class: "paths" }),
    open = [root],
    least = WORTH_OPENING * Math.max(...rows.map((row) => Math.abs(row[total])));
  rows.forEach((row, at) => {
    const leaf = (rows[at + 1]?.depth ?? 0) <= row.depth,
      line = [
        el("code", { title: row.path }, short(row.name, 70)),
        ` ${show(row.a?.[key], "ns")} → ${show(row.b?.[key], "ns")} `,
        el("b", {}, `${row[total] > 0 ? "+" : ""}${show(row[total], "ns")}`),
      ];
    open.length = row.depth + 1;
    const node = leaf
      ? el("div", {}, line)
      : el("details", { open: Math.abs(row[total]) >= least }, el("summary", {}, line));
    if (row.depth) node.style.marginLeft = "18px";
    (open[row.depth] ?? root).append(node);
    open[row.depth + 1] = node;
  });
  return root;
}

/** @param {Report} report */
function diffTables(report) {
  const found = differenceOf(report);
  const left = (/** @type {string} */ key) => (found.left_out[key] ? `${integers.format(found.left_out[key])} more in --json` : null);
  const host = found.host_ops?.length
    ? card("CPU time", left("host_ops"), table("host_ops", found.host_ops.map(flat), { sort: "change_ns" }))
    : null;
  return section(
    "tables",
    "Operators and kernels",
    "Matched by name. A dash means that the name occurs in only one trace.",
    host,
    card("Operators", left("ops"), table("ops", found.ops.map(flat), { sort: "change_ns" })),
    card("Kernels", left("kernels"), table("diff_kernels", found.kernels.map(flat), { sort: "change_ns" })),
  );
}

/** The ranks of two jobs. @param {Report} report */
function diffRanks(report) {
  const { ranks, only_a, only_b, per_iteration } = differenceOf(report);
  if (!ranks) return null;
  const left = [["A", only_a], ["B", only_b]]
    .filter(([, some]) => some.length)
    .map(([side, some]) => `${numberOf(some.length, "rank")} that only ${side} has, not shown`);
  return section(
    "ranks",
    "Ranks",
    per_iteration ? "Mean step per rank." : "Whole trace per rank.",
    card(null, left.join("; "), table("diff_ranks", ranks, { sort: "change_ns" })),
  );
}

/** Sections in page order. @type {Section[]} */
export const DIFF_SECTIONS = [diffOverview, findingsSection, diffRanks, diffLines, diffIterations, diffPaths, diffTables];
