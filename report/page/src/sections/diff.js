/* D */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el, listed, none } from "../dom.js";
import { card, section, sideBySide, tile } from "../layout.js";
import { short } from "../names.js";
import { col, table, tableCard } from "../table.js";
import { fillOf } from "../theme.js";
import { integers, show } from "../units.js";
import { findingsSection } from "./findings.js";

const WORTH_OPENING = 0.03; // share of the largest change; smaller branches of the call tree are closed

/** @param {Report} report */
const differenceOf = (report) => /** @type {Difference} */ (report.difference);

/** @param {Report} report */
function diffOverview(report) {
  const found = differenceOf(report),
    what = found.per_iteration ? "an iteration" : "whole trace",
    note = (/** @type {number} */ a, /** @type {number} */ b) => (a ? `${(b / a).toFixed(2)} × A` : "");
  return section(
    "overview",
    "Overview",
    found.per_iteration
      ? `Means of an iteration: ${found.iterations_a} of A, ${found.iterations_b} of B.`
      : "The whole traces are compared.",
    listed("warnings", found.damage),
    el(
      "div",
      { class: "tiles" },
      tile(`Device time, ${what}: A`, show(found.total_a, "ns"), found.a),
      tile(`Device time, ${what}: B`, show(found.total_b, "ns"), `${found.b} · ${note(found.total_a, found.total_b)}`),
      tile(`Length, ${what}: A`, show(found.latency_a, "ns"), found.device_a),
      tile(
        `Length, ${what}: B`,
        show(found.latency_b, "ns"),
        `${found.device_b} · ${note(found.latency_a, found.latency_b)}`,
      ),
    ),
    changes(found),
  );
}

/** Source lines, those that call other operators first. @param {Report} report */
function diffLines(report) {
  const { lines } = differenceOf(report);
  if (!lines.length) return null;
  const time = lines.some((row) => row.a_device_ns || row.b_device_ns) ? "device_ns" : "host_ns";
  return section(
    "lines",
    "Source lines",
    "Lines that call other operators come first; a line that only moved in its file is one row.",
    tableCard(
      null,
      null,
      [
        col.code("place", "Line"), col.text("what", "What is new"), col.ns("change_ns", "Change"),
        col.ns(`a_${time}`, "A"), col.ns(`b_${time}`, "B"), col.count("a_calls", "Calls in A"),
        col.count("b_calls", "Calls in B"),
      ],
      lines,
      { sort: "", name: "lines" },
    ),
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
  const columns = [col.code("name", "Operator"), col.ns("change_ns", "Change"), col.other("ratio", "B / A", "×")];
  const half = (/** @type {string} */ heading, /** @type {Row[]} */ rows, /** @type {string} */ name) =>
    card(heading, null, rows.length ? table(columns, rows, { sort: "", filter: false, name }) : none("None."));
  return sideBySide(
    [6, 6],
    half("Slower in B, the most first", moved(found.losses, 1), "slower"),
    half("Faster in B, the most first", moved(found.gains, -1), "faster"),
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
          `iteration ${items[0].dataIndex}`,
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
    "Iterations",
    "Each trace's iterations in order, by their length.",
    card(null, null, node, legend(names.map((name, i) => ({ name, color: i })))),
    phasesCard(differenceOf(report).phases),
  );
}

/** Steps of a serving engine by phase. @param {Row[]} phases */
function phasesCard(phases) {
  const rows = phases.map(({ phase, a, b, ratio }) => ({
    phase,
    a_steps: a?.steps,
    a_ns: a?.mean_latency_ns,
    a_rate: a?.tokens_per_second,
    b_steps: b?.steps,
    b_ns: b?.mean_latency_ns,
    b_rate: b?.tokens_per_second,
    ratio,
  }));
  return tableCard(
    "Serving steps by phase",
    "mean latency of a step, new tokens per second",
    [
      col.text("phase", "Phase"), col.count("a_steps", "A steps"), col.ns("a_ns", "A latency"),
      col.other("a_rate", "A tokens/s"), col.count("b_steps", "B steps"), col.ns("b_ns", "B latency", { like: "a_ns" }),
      col.other("b_rate", "B tokens/s"), col.other("ratio", "B / A", "×"),
    ],
    rows,
    { sort: "", filter: false, name: "serving_phases" },
  );
}

/** @param {Report} report */
function diffPaths(report) {
  const found = differenceOf(report);
  if (!found.paths.length) return null;
  const onDevice = found.paths.some((row) => row.a?.device_ns || row.b?.device_ns),
    key = onDevice ? "device_ns" : "host_ns",
    own = onDevice ? "change_launched_ns" : "change_self_ns",
    total = onDevice ? "change_device_ns" : "change_host_ns";
  const side = onDevice ? "launched_ns" : "self_ns",
    rows = found.paths.filter((row) => row[own]).map((row) => ({ ...row, a: row.a?.[side], b: row.b?.[side] }));
  return section(
    "paths",
    "Call tree",
    `The same operator below the same callers in both traces, by ${onDevice ? "the device time that it launches" : "its host time"}.`,
    card(
      "Where it changes",
      onDevice ? "device time launched by the call itself" : "host time of the call itself",
      table(
        [col.code("path", "Call path"), col.ns("a", "A"), col.ns("b", "B", { like: "a" }), col.ns(own, "Change")],
        rows,
        { sort: own, name: "paths" },
      ),
    ),
    card(
      "The tree",
      found.paths_left_out ? `${integers.format(found.paths_left_out)} smaller paths are left out` : null,
      tree(found.paths, key, total),
    ),
  );
}

/**
 * Rows in depth-first order as nested lists that open and close.
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
  const found = differenceOf(report),
    flat = (/** @type {Row[]} */ rows) =>
      rows.map((row) => ({
        ...row,
        a_count: row.a?.count,
        a_ns: row.a?.total_ns,
        b_count: row.b?.count,
        b_ns: row.b?.total_ns,
      }));
  const columns = [
    col.code("name", "Name"), col.other("a_count", "A count", "number"), col.ns("a_ns", "A"),
    col.other("b_count", "B count", "number"), col.ns("b_ns", "B", { like: "a_ns" }),
    col.ns("change_ns", "Change", { like: "a_ns" }), col.other("ratio", "B / A", "×"),
  ];
  const left = (/** @type {string} */ key) => (found.left_out[key] ? `${integers.format(found.left_out[key])} more in --json` : null);
  if (found.host_ops) columns.push(col.count("rank", "Most on rank"), col.ns("rank_change_ns", "Change there", { like: "a_ns" }));
  const host = found.host_ops?.length
    ? card("Host", left("host_ops"), table(columns, flat(found.host_ops), { sort: "change_ns", name: "host_ops" }))
    : null;
  return section(
    "tables",
    "Operators and kernels",
    "Matched by name; a dash where one trace has none.",
    host,
    card("Operators", left("ops"), table(columns, flat(found.ops), { sort: "change_ns", name: "ops" })),
    card("Kernels", left("kernels"), table(columns, flat(found.kernels), { sort: "change_ns", name: "diff_kernels" })),
  );
}

/** The ranks of two jobs. @param {Report} report */
function diffRanks(report) {
  const { ranks, only_a, only_b, per_iteration } = differenceOf(report);
  if (!ranks) return null;
  const left = [["A", only_a], ["B", only_b]]
    .filter(([, some]) => some.length)
    .map(([side, some]) => `${integers.format(some.length)} ranks only in ${side} are left out`);
  const columns = [
    col.count("rank", "Rank"), col.ns("a_ns", "A"), col.ns("b_ns", "B", { like: "a_ns" }),
    col.ns("change_ns", "Change", { like: "a_ns" }), col.other("ratio", "B / A", "×"),
    col.ns("a_device_ns", "Device, A"), col.ns("b_device_ns", "Device, B", { like: "a_device_ns" }),
    col.ns("a_communication_ns", "Communication, A"), col.ns("b_communication_ns", "Communication, B"),
  ];
  return section(
    "ranks",
    "Ranks",
    per_iteration ? "An iteration of each rank, on average." : "The whole trace of each rank.",
    card(null, left.join("; "), table(columns, ranks, { sort: "change_ns", name: "diff_ranks" })),
  );
}

/** In their order on the page. @type {Section[]} */
export const DIFF_SECTIONS = [findingsSection, diffOverview, diffRanks, diffLines, diffIterations, diffPaths, diffTables];
