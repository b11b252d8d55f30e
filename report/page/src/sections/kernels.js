/* Kernels and GEMMs against what the device can do at best. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el, none } from "../dom.js";
import { card, kindsOf, leftOut, section } from "../layout.js";
import { short } from "../names.js";
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
    "Kernels against the peaks of the device. Under the slope, memory bandwidth is the limit; under the roof, arithmetic. The area of a circle is its share of the time.",
    points.length
      ? rooflineCard(report, rank, points)
      : card(
          "Roofline",
          null,
          none(
            "No kernel's FLOPs and bytes are known: the trace has no shapes (record_shapes), or only operators that move data.",
          ),
        ),
    tableCard("Kernels", leftOut(rank, "kernels"), "kernels", rows, { sort: "total_ns", jump: kernelPlace }),
    tableCard(
      "GEMMs",
      leftOut(rank, "gemms") ?? "batch × (m, k) · (k, n), over the time of all kernels of the operator",
      "gemms",
      rank.analysis.gemms,
      { sort: "total_ns", jump: productPlace },
    ),
  );
}

/** @type {PlaceOf} */
const kernelPlace = ({ device, kernel, dtype }) => ({
  gpu: true,
  device,
  name: kernel,
  has: (columns, i, texts) => (texts.dtypes[columns.dtype[i]] ?? "") === dtype,
  orElse: { gpu: true, device, name: kernel },
});

/** Of a matrix product its main kernel, which has the FLOPs. @type {PlaceOf} */
const productPlace = ({ device, op, batch, m, n, k, count, flops, kernels }) => ({
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
            ["of the whole operator", show(row.operator_flops_per_second, "flop/s")],
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
  const note = `${device.known_as ?? device.name ?? "device"}${bandwidth ? `, memory ${show(bandwidth, "bytes/s")}` : ", peaks unknown"} · ${shown.length} of ${rank.analysis.kernels.length} kernels, those whose FLOPs and bytes are known`;
  return card("Roofline", note, legend(present), node);
}
