/* Values over time: memory with its peak and who holds it; launch queues, copies, what the launches cost. */

const NAMED_CURVES = 8;

/** Step lines over the trace's time; `mark` is {ts, value, name} of a point to point at. */
function curves(rank, list, unit, { mark = null } = {}) {
  const node = el("div"),
    shown = list.slice(0, NAMED_CURVES);
  chart(node, 230, () => ({
    grid: { left: 74, right: 24, top: 18, bottom: 26 },
    tooltip: tooltip(
      (items) =>
        tip(
          show(items[0].value[0], "ns"),
          items.map((item) => [item.seriesName, show(item.value[1], unit)]),
        ),
      { trigger: "axis" },
    ),
    xAxis: axis({ type: "value", ...(rank.step ? shownTime(rank) : { min: 0 }), unit: "ns", axisLabel: { hideOverlap: true } }),
    yAxis: axis({ type: "value", min: 0, unit }),
    dataZoom: [{ type: "inside", filterMode: "none" }],
    series: shown.map((one, i) => ({
      name: one.title,
      type: "line",
      step: "end",
      showSymbol: false,
      lineStyle: { width: 1.4, color: Theme.colour(i), type: DASHES[patternOf(i)] },
      itemStyle: { color: Theme.colour(i) },
      areaStyle: shown.length === 1 ? { color: Theme.colour(i), opacity: 0.14 } : undefined,
      data: one.ts.map((ts, k) => [ts, one.values[k]]),
      markPoint: mark && i === 0 ? marked(mark) : undefined,
    })),
  }));
  const more = list.length > shown.length ? ` (the first ${shown.length} of ${list.length})` : "";
  return el("div", {}, node, legend(shown.map((one, i) => ({ name: one.title, colour: i })), { more }));
}

function marked({ ts, value, name }) {
  return {
    symbol: "circle",
    symbolSize: 9,
    data: [{ coord: [ts, value], name }],
    label: { show: true, position: "left", distance: 8, color: Theme.value("text"), formatter: () => name },
  };
}

const MEMORY_SOURCES = {
  "allocator events": "what the allocators recorded (profile_memory)",
  "tensors of the ET": "the tensors of the Execution Trace, from the call that makes a storage to the last that uses it",
};

const ALLOCATED = [col.code("operator", "Allocated by"), col.text("category", "Category")],
  SIZES = [col.count("blocks", "Blocks"), col.bytes("bytes", "Size")];

function memorySection(report, rank) {
  const { memory, memory_holders, memory_outliving } = rank.analysis;
  if (!memory.length) return null;
  const worth = memory.filter((one) => one.peak_bytes >= 0.01 * memory[0].peak_bytes);
  return section(
    "memory",
    "Memory",
    `How much is allocated over time, who holds it at the peak, and what outlives its iteration; from ${MEMORY_SOURCES[memory[0].source]}.`,
    ...worth.map((one) => memoryCard(rank, one, memory_holders)),
    tableCard(
      "Devices",
      null,
      [
        col.text("device", "Device"), col.bytes("peak_bytes", "Peak"), col.bytes("before_bytes", "Before the trace"),
        col.bytes("end_bytes", "At the end"),
        col.bytes("reserved_peak_bytes", "Reserved", { hint: "By the allocator, at most" }),
        col.count("blocks", "Blocks"), col.bytes("allocated_bytes", "Allocated in all"),
      ],
      memory,
      { sort: "peak_bytes", filter: false, name: "memory", jump: (row) => peakPlace(rank, row) },
    ),
    tableCard(
      "What outlives its iteration",
      "allocated in one iteration and held at its end, over all iterations",
      [
        ...ALLOCATED, col.text("device", "Device"), ...SIZES,
        col.bytes("next_bytes", "Freed in the next", { like: "bytes" }),
        col.bytes("kept_bytes", "Never freed", { like: "bytes" }),
      ],
      memory_outliving,
      { sort: "bytes", name: "memory_outliving", jump: ({ operator }) => ({ gpu: false, name: operator }) },
    ),
  );
}

function memoryCard(rank, one, holders) {
  const mine = holders.filter((row) => row.device === one.device),
    kinds = {};
  for (const row of mine) kinds[row.category] = (kinds[row.category] ?? 0) + row.bytes;
  const names = Object.keys(kinds).sort((a, b) => kinds[b] - kinds[a]),
    peak = { ts: one.peak_ns - rank.start_ns, value: one.peak_bytes, name: `peak ${show(one.peak_bytes, "bytes")}` },
    curve = (counter) => counter.device === one.number && ["allocated", "reserved"].includes(counter.kind);
  return card(
    `Allocated on ${one.device}`,
    `peak ${show(one.peak_bytes, "bytes")} at ${show(peak.ts, "ns")}`,
    curves(rank, rank.counters.filter(curve), "bytes", { mark: peak.ts >= 0 ? peak : null }),
    el("h3", {}, "Held at the peak"),
    stack(
      [{ name: "", whole: one.peak_bytes, parts: names.map((name, i) => ({ name, colour: i, ns: kinds[name] })) }],
      { unit: "bytes" },
    ),
    table(
      [...ALLOCATED, col.code("modules", "Module", { front: true }), col.code("source", "Line", { front: true }), ...SIZES, col.share("share", "Share")],
      mine.map((row) => ({
        ...row,
        modules: row.modules.replaceAll("nn.Module: ", ""),
        share: row.bytes / (one.peak_bytes || 1),
      })),
      { sort: "bytes", name: `memory_holders ${one.device}`, jump: (row) => holderPlace(row) ?? peakPlace(rank, one) },
    ),
  );
}

/** The time at which a device held most. */
const peakPlace = (rank, { peak_ns }) => ({ from: peak_ns - rank.start_ns, to: peak_ns - rank.start_ns });

/** Of a row the longest call that allocated; of what no call of the trace did, none. */
const holderPlace = ({ operator, source }) =>
  timeline?.names.has(shortenedName(operator))
    ? { ...(source ? ofLine(source, false) : { gpu: false }), name: operator, orElse: { gpu: false, name: operator } }
    : null;

const copyPlace = ({ device, kind }) => ({
  gpu: true,
  device,
  has: (columns, i, texts, name) => /^mem(cpy|set)/i.test(texts.names[name]) && texts.names[name].toLowerCase().includes(kind.toLowerCase()),
});

const sequencePlace = ({ op, kernels }) => ({
  gpu: false,
  name: op,
  has: (columns, i) => columns.device_events[i] === kernels.split(" | ").length,
  orElse: { gpu: false, name: op },
});

function launchesSection(report, rank) {
  const { idle_causes, launches, queues, copies, sequences } = rank.analysis;
  if (!launches.length && !idle_causes.length && !copies.length) return null;
  const several = new Set(idle_causes.map((row) => row.device)).size > 1,
    queueOf = (row) => queues.find(({ device, stream }) => device === row.device && stream === row.stream),
    series = (kind) => rank.counters.filter((counter) => counter.kind === kind);
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
