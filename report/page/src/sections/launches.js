/* L */

import { curves } from "../curves.js";
import { card, section } from "../layout.js";
import { col, table, tableCard } from "../table.js";
import { streamName } from "./idle.js";

/** @type {PlaceOf} */
const copyPlace = ({ device, kind }) => ({
  gpu: true,
  device,
  has: (columns, i, texts, name) => /^mem(cpy|set)/i.test(texts.names[name]) && texts.names[name].toLowerCase().includes(kind.toLowerCase()),
});

/** @type {PlaceOf} */
const sequencePlace = ({ op, kernels }) => ({
  gpu: false,
  name: op,
  has: (columns, i) => columns.device_events[i] === kernels.split(" | ").length,
  orElse: { gpu: false, name: op },
});

/** @type {Section} */
export function launchesSection(report, rank) {
  const { idle_causes, launches, queues, copies, sequences } = rank.analysis;
  if (!launches.length && !idle_causes.length && !copies.length) return null;
  const several = new Set(idle_causes.map((row) => row.device)).size > 1,
    queueOf = (/** @type {Row} */ row) => queues.find(({ device, stream }) => device === row.device && stream === row.stream),
    series = (/** @type {string} */ kind) => rank.counters.filter((counter) => counter.kind === kind);
  const lanes = idle_causes.map((row) => ({ ...queueOf(row), ...row, number: row.stream, stream: streamName(row, several) }));
  return section(
    "launches",
    "Launches, queues, copies",
    "Why streams wait, how long launches take and wait, how fast copies are, and which kernels operators launch in a row.",
    tableCard(
      "Why streams wait, and their queues",
      `host: launched late; kernel: under ${rank.analysis.consecutive_kernel_delay_ns / 1000} µs behind the event before; before and after: no event yet, none any more; a queue of 1,024 blocks the host`,
      [
        col.text("stream", "Stream"), col.ns("idle_ns", "Idle"), col.ns("host_wait_ns", "Host", { like: "idle_ns" }),
        col.ns("kernel_wait_ns", "Kernel", { like: "idle_ns" }), col.ns("other_ns", "Other", { like: "idle_ns" }),
        col.ns("before_first_ns", "Before", { like: "idle_ns" }), col.ns("after_last_ns", "After", { like: "idle_ns" }),
        col.count("longest", "Longest queue"), col.other("mean", "Mean queue", "launches"),
        col.ns("full_ns", "Queue full"),
      ],
      lanes,
      { sort: "idle_ns", name: "idle_causes", jump: ({ device, number }) => ({ gpu: true, device, stream: number, gap: true }) },
    ),
    series("queue").length ? card("Launches in the queue", "launched and not begun", curves(rank, series("queue"), "")) : null,
    tableCard(
      "Launches",
      null,
      [
        col.code("call", "Call"), col.count("count", "Events"), col.ns("median_call_ns", "Call, median"),
        col.ns("median_delay_ns", "Delay, median"), col.ns("max_delay_ns", "Delay, longest"),
        col.count("short", "Shorter than their call"), col.count("long_calls", "Calls over 50 µs"),
        col.count("long_delays", "Delays over 100 µs"),
      ],
      launches,
      { sort: "count", name: "launches" },
    ),
    copies.length
      ? card(
          "Copies and memsets",
          null,
          series("bandwidth").length ? curves(rank, series("bandwidth"), "bytes/s") : null,
          table(
            [
              col.text("kind", "Kind"), col.count("device", "Device"), col.count("count", "Count"),
              col.bytes("bytes", "Bytes"), col.ns("total_ns", "Sum of durations"), col.ns("busy_ns", "At least one"),
              col.bandwidth("bytes_per_second", "Bandwidth"),
            ],
            copies,
            { sort: "bytes", name: "copies", jump: copyPlace },
          ),
        )
      : null,
    tableCard(
      "Sequences of kernels",
      "what one call of an operator launches, in order, where it recurs; candidates for fusion",
      [
        col.code("op", "Operator"), col.count("count", "Calls"), col.ns("gpu_ns", "GPU time"),
        col.ns("host_ns", "Host time"), col.code("kernels", "Kernels"),
      ],
      sequences.filter((row) => row.count > 1),
      { sort: "gpu_ns", name: "sequences", jump: sequencePlace },
    ),
  );
}
