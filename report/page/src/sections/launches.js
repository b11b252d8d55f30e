/* Why streams wait, launches and their queues, copies, and sequences of kernels. */

import { curves } from "../curves.js";
import { card, section } from "../layout.js";
import { table, tableCard } from "../table.js";
import { lanePlace } from "./idle.js";

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
  const queueOf = (/** @type {Row} */ row) => queues.find(({ device, stream }) => device === row.device && stream === row.stream),
    series = (/** @type {string} */ kind) => rank.counters.filter((counter) => counter.kind === kind);
  const lanes = idle_causes.map((row) => ({ ...queueOf(row), ...row }));
  return section(
    "launches",
    "Launches, queues, copies",
    "Why streams wait, how long launches take, how fast copies are, and which kernels operators launch in sequence.",
    tableCard(
      "Why streams wait",
      `"between kernels" covers gaps below ${rank.analysis.consecutive_kernel_delay_ns / 1000} µs; "before first" and "after last" cover idle time before the first and after the last GPU event; a queue of 1,024 launches blocks the CPU`,
      "idle_causes",
      lanes,
      { sort: "idle_ns", jump: (row) => ({ ...lanePlace(row), gap: true }) },
    ),
    series("queue").length ? card("Launches in the queue", "launched, not yet started", curves(rank, series("queue"), "")) : null,
    tableCard("Launches", null, "launches", launches, { sort: "count" }),
    copies.length
      ? card(
          "Copies and memsets",
          null,
          series("bandwidth").length ? curves(rank, series("bandwidth"), "bytes/s") : null,
          table("copies", copies, { sort: "bytes", jump: copyPlace }),
        )
      : null,
    tableCard(
      "Sequences of kernels",
      "kernels that an operator launches repeatedly in the same order; candidates for fusion",
      "sequences",
      sequences.filter((row) => row.count > 1),
      { sort: "gpu_ns", jump: sequencePlace },
    ),
  );
}
