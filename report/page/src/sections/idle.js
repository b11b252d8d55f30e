/* Busy time of devices and streams, iterations, and the longest gaps. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el } from "../dom.js";
import { card, section, sideBySide } from "../layout.js";
import { stack } from "../stack.js";
import { tableCard } from "../table.js";
import { fillOf } from "../theme.js";
import { show } from "../units.js";

const LAUNCHED = "already launched";

/** @type {Section} */
export function idleSection(report, rank) {
  const { streams, device_use, iteration_list } = rank.analysis;
  if (!streams.length) return null;
  if (!device_use.length) return streamSums(streams);
  const several = device_use.length > 1;
  const bars = [...streams].sort((a, b) => b.busy_ns - a.busy_ns).slice(0, 12);
  const gaps = rank.gaps.map((gap) => ({
    ...gap,
    cause: gapCause(gap),
  }));
  return section(
    "idle",
    "Idle and overlap",
    "Busy time per stream, overlap and the longest gaps.",
    sideBySide(
      [6, 6],
      card(
        "Streams",
        streams.length > bars.length ? `the ${bars.length} busiest of ${streams.length}` : null,
        stack(
          bars.map((use) => ({
            name: streamName(use, several),
            whole: use.window_ns,
            parts: [{ name: "Busy", color: 0, ns: use.busy_ns }, { name: "Idle", color: "line", ns: use.idle_ns }],
          })),
        ),
      ),
      iteration_list.length ? iterationsCard(rank) : null,
    ),
    tableCard("Devices", null, "device_use", device_use, { sort: "busy_ns", filter: false, jump: lanePlace }),
    tableCard("Streams in numbers", null, "streams", streams, { sort: "busy_ns", jump: lanePlace }),
    tableCard(
      "Longest gaps",
      null,
      "gaps",
      gaps,
      { sort: "idle_ns", jump: (gap) => ({ from: gap.start, to: gap.start + gap.idle_ns }) },
    ),
  );
}

/** Sums of durations per stream if no start times were recorded, so busy and idle time are unknown. @param {Row[]} streams */
function streamSums(streams) {
  return section(
    "idle",
    "Streams",
    "Sums of durations. The trace has no start times, so busy and idle time are unknown.",
    tableCard("Streams in numbers", null, "streams", streams, { sort: "total_ns", jump: lanePlace }),
  );
}

/** Cause of a gap: why the device has nothing to run. @param {Row} gap */
function gapCause({ before, after, launch_ns }) {
  if (!after) return "no later event";
  const late = launch_ns === null ? "launch not in the trace" : launch_ns > 0 ? "launched late" : LAUNCHED;
  return before ? late : `before the first event: ${late}`;
}

/** The longest event of a device or stream. @type {PlaceOf} */
export const lanePlace = ({ device, stream }) => ({ gpu: true, device, stream });

/** Name of a stream, with its device if there are several. @param {Row} stream @param {boolean} several */
function streamName({ device, stream }, several) {
  return several ? `GPU ${device} · stream ${stream}` : `stream ${stream}`;
}

/** @param {Rank} rank */
function iterationsCard(rank) {
  const rows = rank.analysis.iteration_list,
    node = el("div"),
    kinds = [
      { name: "GPU busy", color: 0, value: (/** @type {Row} */ row) => row.gpu_ns },
      { name: "GPU idle", color: "line", value: (/** @type {Row} */ row) => row.latency_ns - row.gpu_ns },
    ];
  chart(node, 210, () => ({
    grid: { left: 62, right: 10, top: 12, bottom: 26 },
    tooltip: tooltip((item) => {
      const row = rows[item.dataIndex];
      return tip(row.name, [
        ["duration", show(row.latency_ns, "ns")],
        ["GPU busy", show(row.gpu_ns, "ns")],
        ["share", show(row.gpu_ns / (row.latency_ns || 1), "share")],
      ]);
    }),
    xAxis: axis({
      type: "category",
      data: rows.map((row) => row.name),
      splitLine: { show: false },
      axisLabel: { hideOverlap: true, formatter: (name) => name.replace("ProfilerStep#", "step ") },
    }),
    yAxis: axis({ type: "value", splitNumber: 4, unit: "ns" }),
    series: kinds.map(({ name, color, value }) => ({
      name,
      type: "bar",
      stack: "all",
      barMaxWidth: 46,
      itemStyle: { color: fillOf(color) },
      data: rows.map(value),
    })),
  }));
  return card("Steps", `mean ${show(rank.analysis.iterations.mean_latency_ns, "ns")}`, node, legend(kinds));
}
