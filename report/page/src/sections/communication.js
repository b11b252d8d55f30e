/* Collectives: their messages, times and bandwidths. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el } from "../dom.js";
import { card, leftOut, section } from "../layout.js";
import { tableCard } from "../table.js";
import { patternOf, SYMBOLS, Theme } from "../theme.js";
import { show } from "../units.js";

/** @type {Section} */
export function communicationSection(report, rank) {
  const rows = rank.analysis.communication;
  if (!rows.length) return null;
  const known = rows.filter((row) => row.bytes && row.algorithm_bandwidth),
    node = el("div"),
    names = [...new Set(known.map((row) => row.collective || "unnamed"))];
  const most = Math.max(...known.map((row) => row.total_ns));
  if (known.length) {
    chart(node, 270, () => ({
      grid: { left: 80, right: 16, top: 14, bottom: 44 },
      tooltip: tooltip((item) => {
        const row = item.data.row;
        return tip(row.collective || "unnamed", [
          ["message", show(row.bytes, "bytes")],
          ["dtype", row.dtype || "–"],
          ["group", row.group || "–"],
          ["ranks", row.group_size ? String(row.group_size) : "–"],
          ["kernels", show(row.count, "count")],
          ["mean duration", show(row.mean_ns, "ns")],
          ["algorithm bandwidth", show(row.algorithm_bandwidth, "bytes/s")],
          ["bus bandwidth", show(row.bus_bandwidth, "bytes/s")],
        ]);
      }),
      xAxis: axis({ type: "log", name: "message size", nameLocation: "middle", nameGap: 28, unit: "bytes" }),
      yAxis: axis({ type: "log", unit: "bytes/s" }),
      series: names.map((name, i) => ({
        name,
        type: "scatter",
        symbol: SYMBOLS[patternOf(i)],
        itemStyle: { color: Theme.color(i), opacity: 0.8, borderColor: Theme.value("card") },
        symbolSize: (_, item) => 8 + 20 * Math.sqrt(item.data.row.total_ns / most),
        data: known
          .filter((row) => (row.collective || "unnamed") === name)
          .map((row) => ({ value: [row.bytes, row.bus_bandwidth ?? row.algorithm_bandwidth], row })),
      })),
    }));
  }
  return section(
    "communication",
    "Communication",
    "Durations of communication kernels include waits for other ranks, so the bandwidths describe the job, not the links.",
    known.length
      ? card(
          "Bus bandwidth by message size",
          "algorithm bandwidth if the number of ranks is unknown",
          legend(names.map((name, i) => ({ name, color: i }))),
          node,
        )
      : null,
    tableCard(
      "Collectives",
      leftOut(rank, "communication"),
      "communication",
      rows,
      { sort: "total_ns", jump: collectivePlace },
    ),
  );
}

/** The longest kernel of a row's collective. @type {PlaceOf} */
const collectivePlace = ({ collective, dtype, bytes }) => ({
  gpu: true,
  has: (columns, i, texts) => {
    const comm = texts.comms[columns.comm[i]];
    return Boolean(comm) && (comm.collective ?? "") === collective && (comm.dtype ?? "").toLowerCase() === dtype && messageOf(comm) === bytes;
  },
  orElse: { gpu: true, has: (columns, i) => columns.comm[i] >= 0 },
});

/** Bytes of the larger of input and output; a `Comm` stores the bytes of its input. @param {Row} comm */
function messageOf({ bytes, in_nelems, out_nelems }) {
  const given = in_nelems || out_nelems;
  return bytes === null || !given ? bytes : Math.floor(bytes / given) * Math.max(in_nelems ?? 0, out_nelems ?? 0);
}
