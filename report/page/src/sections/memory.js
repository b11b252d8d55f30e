/* Memory over time, its holders at the peak, and blocks that outlive their step. */

import { curves } from "../curves.js";
import { el } from "../dom.js";
import { card, section } from "../layout.js";
import { shortenedName } from "../names.js";
import { stack } from "../stack.js";
import { page } from "../state.js";
import { table, tableCard } from "../table.js";
import { ofLine } from "../timeline/places.js";
import { show } from "../units.js";

/** @type {Record<string, string>} */
const MEMORY_SOURCES = {
  "allocator events": "allocator events (profile_memory)",
  "tensors of the ET": "tensors of the Execution Trace, from the call that creates a storage to the last use",
};

/** @type {Section} */
export function memorySection(report, rank) {
  const { memory, memory_holders, memory_outliving } = rank.analysis;
  if (!memory.length) return null;
  const worth = memory.filter((one) => one.peak_bytes >= 0.01 * memory[0].peak_bytes);
  return section(
    "memory",
    "Memory",
    `Allocated memory, its holders at the peak, and blocks that outlive their step. Source: ${MEMORY_SOURCES[memory[0].source]}.`,
    ...worth.map((one) => memoryCard(rank, one, memory_holders)),
    tableCard(
      "Devices",
      null,
      "memory",
      memory,
      { sort: "peak_bytes", filter: false, jump: (row) => peakPlace(rank, row) },
    ),
    tableCard(
      "Blocks that outlive their step",
      "allocated in a step and still held at its end; summed over all steps",
      "memory_outliving",
      memory_outliving,
      { sort: "bytes", jump: ({ operator }) => ({ gpu: false, name: operator }) },
    ),
  );
}

/** @param {Rank} rank @param {Row} one @param {Row[]} holders */
function memoryCard(rank, one, holders) {
  const mine = holders.filter((row) => row.device === one.device),
    /** @type {Record<string, number>} */ kinds = {};
  for (const row of mine) kinds[row.category] = (kinds[row.category] ?? 0) + row.bytes;
  const names = Object.keys(kinds).sort((a, b) => kinds[b] - kinds[a]),
    peak = { ts: one.peak_ns - rank.start_ns, value: one.peak_bytes, name: `peak ${show(one.peak_bytes, "bytes")}` },
    curve = (/** @type {Counter} */ counter) => counter.device === one.number && ["allocated", "reserved"].includes(counter.kind);
  return card(
    `Allocated on ${one.device}`,
    `peak ${show(one.peak_bytes, "bytes")} at ${show(peak.ts, "ns")}`,
    curves(rank, rank.counters.filter(curve), "bytes", { mark: peak.ts >= 0 ? peak : null }),
    el("h3", {}, "Held at the peak"),
    stack(
      [{ name: "", whole: one.peak_bytes, parts: names.map((name, i) => ({ name, color: i, ns: kinds[name] })) }],
      { unit: "bytes" },
    ),
    table(
      `memory_holders ${one.device}`,
      mine.map((row) => ({
        ...row,
        modules: row.modules.replaceAll("nn.Module: ", ""),
        share: row.bytes / (one.peak_bytes || 1),
      })),
      { sort: "bytes", jump: (row) => holderPlace(row) ?? peakPlace(rank, one) },
    ),
  );
}

/** The time of the peak. @param {Rank} rank @param {Row} row */
const peakPlace = (rank, { peak_ns }) => ({ from: peak_ns - rank.start_ns, to: peak_ns - rank.start_ns });

/**
 * The longest call of a row that allocated memory; null if the trace has no such call.
 * @type {(row: Row) => Place | null}
 */
const holderPlace = ({ operator, source }) =>
  page.timeline?.names.has(shortenedName(operator))
    ? { ...(source ? ofLine(source, false) : { gpu: false }), name: operator, orElse: { gpu: false, name: operator } }
    : null;
