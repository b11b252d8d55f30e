/* Launch overheads of the CPU. */

import { axis, chart, tip, tooltip } from "../chart.js";
import { el, none } from "../dom.js";
import { card, section, sideBySide } from "../layout.js";
import { counted } from "../names.js";
import { table } from "../table.js";
import { Theme } from "../theme.js";
import { plain, show } from "../units.js";

const OVERHEADS = [
  ["t1", "T1", "between operators", "Gap between an operator and the next one of the same thread and caller"],
  ["t2", "T2", "before the first launch", "From an operator's start to its first launch"],
  ["t3", "T3", "after the last launch", "From the end of an operator's last launch to its end"],
  ["t4", "T4", "launching call", "The runtime call itself, as measured"],
  ["t5", "T5", "between launches", "Between two launches of an operator; self time of operators without launches"],
];

/** @type {Section} */
export function overheadsSection(report, rank) {
  const { overheads, host_ops } = rank.analysis;
  const bars = OVERHEADS.map(([key, title, text, hint]) => ({
    key,
    title,
    text,
    hint,
    ...(key === "t1" ? overheads.t1 : (overheads.all[key] ?? {})),
  })).filter((row) => row.n);
  if (!bars.length && !host_ops.length) return null;
  const ops = [...new Set(["t2", "t3", "t5"].flatMap((key) => Object.keys(overheads[key])))].map((op) => {
    const host = host_ops.find((row) => row.op === op),
      us = (/** @type {string} */ key) => (overheads[key][op] ? overheads[key][op].mean * 1e3 : null);
    return {
      op,
      count: host?.count ?? null,
      total: host?.total_ns ?? null,
      t2: us("t2"),
      t3: us("t3"),
      t5: us("t5"),
      launches: counted(overheads.launches[op] ?? []),
      n: Math.max(...["t2", "t3", "t5"].map((key) => overheads[key][op]?.n ?? 0)),
    };
  });
  const calls = Object.entries(overheads.t4).map(([call, one]) => ({
    call,
    n: one.n,
    mean: one.mean * 1e3,
    std: one.std * 1e3,
    all: one.mean_with_outliers * 1e3,
    outliers: one.outliers,
    sum: one.mean_with_outliers * 1e3 * (one.n + one.outliers),
  }));
  return section(
    "overheads",
    "Launch overheads",
    `CPU time around operators and launches, without outliers and less ${overheads.cpu_event_overhead_us} µs per profiler event.`,
    sideBySide(
      [5, 7],
      card(
        "The five overheads",
        "mean; whiskers: one standard deviation",
        bars.length ? overheadBars(bars) : none("No operator launches GPU work."),
      ),
      card("T4 by runtime call", null, calls.length ? launchTable(calls) : none("The trace has no launches.")),
    ),
    card(
      "By operator",
      "topmost operators; CPU time includes their calls",
      table("overheads", ops, { sort: "total", jump: ({ op }) => ({ gpu: false, name: op }) }),
    ),
  );
}

/** @param {Row[]} calls */
function launchTable(calls) {
  return table("t4", calls, { sort: "sum" });
}

/** Horizontal bars of mean and standard deviation, µs. @param {Row[]} bars */
function overheadBars(bars) {
  const node = el("div"),
    rows = bars.slice().reverse();
  chart(node, 34 * rows.length + 40, () => ({
    grid: { left: 158, right: 20, top: 4, bottom: 26 },
    tooltip: tooltip((item) => {
      const row = rows[item.dataIndex];
      return tip(`${row.title}: ${row.hint}`, [
        ["mean", `${plain(row.mean)} µs`],
        ["standard deviation", `${plain(row.std)} µs`],
        ["rows", show(row.n, "count")],
        ["clipped to 0", show(row.clipped, "count")],
        ["outliers left out", show(row.outliers, "count")],
        ["mean with outliers", `${plain(row.mean_with_outliers)} µs`],
      ]);
    }),
    xAxis: axis({ type: "value", min: 0, splitNumber: 4, axisLabel: { formatter: (value) => `${value} µs` } }),
    yAxis: axis({
      type: "category",
      data: rows.map((row) => `${row.title} ${row.text}`),
      axisLine: { show: false },
      axisLabel: { color: Theme.value("text") },
    }),
    series: [
      {
        type: "bar",
        barWidth: 16,
        itemStyle: { color: Theme.color(0), borderRadius: [0, 3, 3, 0] },
        data: rows.map((row) => row.mean),
      },
      {
        type: "custom",
        silent: true,
        z: 5,
        data: rows.map((row, i) => [Math.max(0, row.mean - row.std), row.mean + row.std, i]),
        encode: { x: [0, 1], y: 2 },
        renderItem: (_, api) => {
          const [a, y] = api.coord([api.value(0), api.value(2)]),
            [b] = api.coord([api.value(1), api.value(2)]),
            style = { stroke: Theme.value("text"), lineWidth: 1.2, opacity: 0.75 };
          return {
            type: "group",
            children: [
              [a, y, b, y],
              [a, y - 4, a, y + 4],
              [b, y - 4, b, y + 4],
            ].map(([x1, y1, x2, y2]) => ({ type: "line", shape: { x1, y1, x2, y2 }, style })),
          };
        },
      },
    ],
  }));
  return node;
}
