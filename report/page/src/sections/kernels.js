/* Throughput of kernels and GEMMs compared with the device's peaks. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el, none } from "../dom.js";
import { card, kindsOf, leftOut, section } from "../layout.js";
import { bare, short } from "../names.js";
import { tableCard } from "../table.js";
import { patternOf, SYMBOLS, Theme } from "../theme.js";
import { callOf } from "../timeline/places.js";
import { neat, plain, power, show } from "../units.js";

/** @type {Section} */
export function kernelsSection(report, rank) {
  /** @type {Row[]} */
  const rows = rank.analysis.kernels.map((row, i) => ({
    ...row,
    kind: rank.kernel_kinds[i],
    kernel_kind: report.gpu_kinds[rank.kernel_kinds[i]].name,
  }));
  if (!rows.length) return null;
  const points = rows.filter((row) => row.intensity && row.flops_per_second);
  return section(
    "kernels",
    "Kernels and roofline",
    "Kernel throughput compared with the device's peaks. Memory bandwidth limits kernels below the slope; peak FLOP rate limits kernels below the flat roof. The area of a mark is its share of the time.",
    points.length
      ? rooflineCard(report, rank, points)
      : card(
          "Roofline",
          null,
          none(
            "FLOPs and bytes are unknown for all kernels: the trace has no shapes (record_shapes), or its operators only move data.",
          ),
        ),
    tableCard("Kernels by name", leftOut(rank, "kernels"), "kernels", kernelsByName(rows), { sort: "total_ns", jump: kernelPlace }),
    tableCard(
      "GEMMs",
      leftOut(rank, "gemms") ?? "batch × (m, k) · (k, n); rates use the time of all kernels of the operator",
      "gemms",
      rank.analysis.gemms,
      { sort: "total_ns", jump: gemmPlace },
    ),
  );
}

/** @param {Row[]} rows @param {string} key */
const sumOf = (rows, key) => rows.reduce((sum, row) => sum + (row[key] ?? 0), 0);

/**
 * Mean rate, or mean share of a peak, of the kernels whose amounts are known, weighted by time.
 * @param {Row[]} rows
 * @param {string} key
 * @param {string} amount
 * @param {string} rate
 */
function meanRate(rows, key, amount, rate = key) {
  const known = rows.filter((row) => row[key] !== null && row[rate]),
    times = known.map((row) => row[amount] / row[rate]),
    whole = times.reduce((sum, time) => sum + time, 0);
  return whole ? known.reduce((sum, row, i) => sum + row[key] * times[i], 0) / whole : null;
}

/**
 * Merge kernels with the same readable name on a device into one row with the name of the longest kernel.
 * @param {Row[]} rows
 * @returns {Row[]}
 */
export function kernelsByName(rows) {
  /** @type {Map<string, Row[]>} */
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.device} ${bare(row.kernel)}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups.values()].map((group) => {
    if (group.length === 1) return group[0];
    const count = sumOf(group, "count"),
      total_ns = sumOf(group, "total_ns"),
      all = (/** @type {string} */ key) => [...new Set(group.map((row) => row[key]).filter(Boolean))].join(" "),
      known = group.filter((row) => row.intensity !== null);
    return {
      ...group[0],
      variants: group.length,
      members: group.map((row) => row.kernel),
      count,
      total_ns,
      mean_ns: total_ns / count,
      dtype: all("dtype"),
      ops: all("ops"),
      bound: all("bound"),
      flops_per_second: meanRate(group, "flops_per_second", "flops"),
      operator_flops_per_second: meanRate(group, "operator_flops_per_second", "flops"),
      flops_share: meanRate(group, "flops_share", "flops", "flops_per_second"),
      bytes_per_second: meanRate(group, "bytes_per_second", "bytes"),
      most_bytes_per_second: meanRate(group, "most_bytes_per_second", "most_bytes"),
      bytes_share: meanRate(group, "bytes_share", "bytes", "bytes_per_second"),
      intensity: known.length ? sumOf(known, "flops") / sumOf(known, "bytes") : null,
    };
  });
}

/** @type {PlaceOf} */
const kernelPlace = ({ device, kernel, dtype, variants }) => ({
  gpu: true,
  device,
  name: kernel,
  has: (columns, i, texts) => Boolean(variants) || (texts.dtypes[columns.dtype[i]] ?? "") === dtype,
  orElse: { gpu: true, device, name: kernel },
});

/** Main kernel of a GEMM: the kernel with the FLOPs. @type {PlaceOf} */
const gemmPlace = ({ device, op, batch, m, n, k, count, flops, kernels }) => ({
  gpu: true,
  device,
  has: (columns, i) => columns.flops[i] === flops / count || columns.flops[i] === 2 * batch * m * n * k,
  fits: async (event, texts) => {
    const call = await callOf(event);
    return call !== null && kernels.includes(texts.names[event.name]) && texts.names[call.name] === op;
  },
});

/** @param {Report} report @param {Rank} rank @param {Row[]} points */
function rooflineCard(report, rank, points) {
  const device = rank.analysis.devices[points[0].device],
    node = el("div"),
    kinds = report.gpu_kinds;
  const shown = points.filter((row) => row.device === points[0].device),
    types = [...new Set(shown.map((row) => row.dtype))];
  const roofs = types.map((type) => [type, device.peaks[type]]).filter((roof) => roof[1]);
  const bandwidth = device.memory_gb_s ? device.memory_gb_s * 1e9 : null,
    highest = Math.max(0, ...roofs.map((roof) => roof[1]));
  const x = shown.map((row) => row.intensity),
    y = shown.map((row) => row.flops_per_second);
  const low = 10 ** Math.floor(Math.log10(Math.min(...x))),
    high = 10 ** Math.ceil(Math.log10(Math.max(...x, bandwidth ? (3 * highest) / bandwidth : 1)));
  const bottom = 10 ** Math.floor(Math.log10(Math.min(...y))),
    top = 10 ** Math.ceil(Math.log10(Math.max(...y, highest) * 1.01));
  const most = Math.max(...shown.map((row) => row.total_ns)),
    present = kindsOf(shown, kinds),
    lineStyle = () => ({ color: Theme.value("muted"), width: 1.5 }),
    line = () => ({ type: "line", symbol: "none", silent: true, lineStyle: lineStyle() });
  chart(node, 400, () => ({
    grid: { left: 84, right: 130, top: 16, bottom: 46 },
    tooltip: tooltip((item) => {
      const row = item.data.row;
      return row
        ? tip(short(row.kernel, 180), [
            ["operators", short(row.ops, 60)],
            ["dtype", row.dtype || "–"],
            ["FLOP per byte", plain(row.intensity)],
            ["achieved", show(row.flops_per_second, "flop/s")],
            ["whole operator", show(row.operator_flops_per_second, "flop/s")],
            ["of peak", show(row.flops_share, "share")],
            ["memory", `${show(row.bytes_per_second, "bytes/s")} (${show(row.bytes_share, "share")})`],
            ["calls", show(row.count, "count")],
            ["total time", show(row.total_ns, "ns")],
            ["bound by", row.bound || "–"],
          ])
        : null;
    }),
    xAxis: axis({
      type: "log",
      min: low,
      max: high,
      name: "FLOP per byte",
      nameLocation: "middle",
      nameGap: 28,
      axisLabel: { formatter: power },
    }),
    yAxis: axis({ type: "log", min: bottom, max: top, unit: "flop/s" }),
    series: [
      ...roofs.map(([type, roof]) => ({
        ...line(),
        tooltip: { show: false },
        z: 1,
        data: [
          ...(bandwidth
            ? [[Math.max(low, bottom / bandwidth), Math.max(low * bandwidth, bottom)], [roof / bandwidth, roof]]
            : [[low, roof]]),
          [high, roof],
        ].filter((point) => point[0] >= low),
        endLabel: { show: true, formatter: `${type} ${neat(roof, "flop/s")}`, color: lineStyle().color, fontSize: 11.5 },
      })),
      ...(roofs.length || !bandwidth ? [] : [{ ...line(), data: [[low, low * bandwidth], [high, high * bandwidth]] }]),
      ...present.map(({ name, color }) => ({
        name,
        type: "scatter",
        z: 3,
        symbol: SYMBOLS[patternOf(color)],
        itemStyle: { color: Theme.color(color), opacity: 0.78, borderColor: Theme.value("card"), borderWidth: 1 },
        symbolSize: (/** @type {any} */ _, /** @type {any} */ item) => 7 + 26 * Math.sqrt(item.data.row.total_ns / most),
        data: shown
          .filter((row) => row.kernel_kind === name)
          .map((row) => ({ value: [row.intensity, row.flops_per_second], row })),
      })),
    ],
  }));
  const note = `${device.known_as ?? device.name ?? "device"}${bandwidth ? `, memory ${show(bandwidth, "bytes/s")}` : ", peaks unknown"} · ${shown.length} of ${rank.analysis.kernels.length} kernels have known FLOPs and bytes`;
  return card("Roofline", note, legend(present), node);
}
