/* Values over time: memory with its peak and who holds it; launch queues, copies, what the launches cost. */

const NAMED_CURVES = 8;

/** Step lines over the trace's time; `mark` is {ts, value, name} of a point to point at. */
function curves(list, unit, { height = 230, mark = null } = {}) {
  const node = el("div"),
    shown = list.slice(0, NAMED_CURVES);
  chart(node, height, () => ({
    grid: { left: 74, right: 24, top: 18, bottom: 26 },
    tooltip: tooltip(
      (items) =>
        tip(
          show(items[0].value[0], "ns"),
          items.map((item) => [item.seriesName, show(item.value[1], unit)]),
        ),
      { trigger: "axis" },
    ),
    xAxis: axis({ type: "value", min: 0, axisLabel: { formatter: (value) => neat(value, "ns"), hideOverlap: true } }),
    yAxis: axis({ type: "value", min: 0, axisLabel: { formatter: (value) => neat(value, unit) } }),
    dataZoom: [{ type: "inside", filterMode: "none" }],
    series: shown.map((one, i) => ({
      name: one.title,
      type: "line",
      step: "end",
      showSymbol: false,
      lineStyle: { width: 1.4, color: Theme.colour(i) },
      itemStyle: { color: Theme.colour(i) },
      areaStyle: shown.length === 1 ? { color: Theme.colour(i), opacity: 0.14 } : undefined,
      data: one.ts.map((ts, k) => [ts, one.values[k]]),
      markPoint:
        mark && i === 0
          ? {
              symbol: "circle",
              symbolSize: 9,
              data: [{ coord: [mark.ts, mark.value], name: mark.name }],
              label: {
                show: true,
                position: "left",
                distance: 8,
                color: Theme.value("text"),
                formatter: () => mark.name,
              },
            }
          : undefined,
    })),
  }));
  const more = list.length > shown.length ? ` (the first ${shown.length} of ${list.length})` : "";
  return el(
    "div",
    {},
    node,
    el(
      "div",
      { class: "legend" },
      shown.map((one, i) => el("span", {}, swatch(i), one.title)),
      more,
    ),
  );
}

const MEMORY_SOURCES = {
  "allocator events": "what the allocators recorded (profile_memory)",
  "tensors of the ET": "the tensors of the Execution Trace, from the call that makes a storage to the last that uses it",
};

function memorySection(report, rank) {
  const { memory, memory_holders, memory_outliving } = rank.analysis;
  if (!memory.length) return null;
  const worth = memory.filter((one) => one.peak_bytes >= 0.01 * memory[0].peak_bytes);
  return section(
    "memory",
    "Memory",
    `How much is allocated over time, who holds it at the peak, and what outlives its iteration; from ${MEMORY_SOURCES[memory[0].source]}.`,
    ...worth.map((one) => memoryCard(rank, one, memory_holders)),
    card(
      "Devices",
      null,
      table(
        [
          { key: "device", title: "Device", unit: "text" },
          { key: "peak_bytes", title: "Peak", unit: "bytes" },
          { key: "before_bytes", title: "Before the trace", unit: "bytes" },
          { key: "end_bytes", title: "At the end", unit: "bytes" },
          { key: "reserved_peak_bytes", title: "Reserved", unit: "bytes", hint: "By the allocator, at most" },
          { key: "blocks", title: "Blocks", unit: "count" },
          { key: "allocated_bytes", title: "Allocated in all", unit: "bytes" },
        ],
        memory,
        { sort: "peak_bytes", filter: false, name: "memory" },
      ),
    ),
    memory_outliving.length
      ? card(
          "What outlives its iteration",
          "allocated in one iteration and held at its end, over all iterations",
          table(
            [
              { key: "operator", title: "Allocated by", unit: "text", code: true },
              { key: "category", title: "Category", unit: "text" },
              { key: "device", title: "Device", unit: "text" },
              { key: "blocks", title: "Blocks", unit: "count" },
              { key: "bytes", title: "Size", unit: "bytes" },
              { key: "next_bytes", title: "Freed in the next", unit: "bytes", like: "bytes" },
              { key: "kept_bytes", title: "Never freed", unit: "bytes", like: "bytes" },
            ],
            memory_outliving,
            { sort: "bytes", name: "memory_outliving" },
          ),
        )
      : null,
  );
}

function memoryCard(rank, one, holders) {
  const mine = holders.filter((row) => row.device === one.device),
    kinds = {};
  for (const row of mine) kinds[row.category] = (kinds[row.category] ?? 0) + row.bytes;
  const names = Object.keys(kinds).sort((a, b) => kinds[b] - kinds[a]),
    peak = { ts: one.peak_ns - rank.start_ns, value: one.peak_bytes, name: `peak ${show(one.peak_bytes, "bytes")}` },
    list = rank.counters.filter(
      (counter) => counter.device === one.number && ["allocated", "reserved"].includes(counter.kind),
    );
  return el(
    "div",
    { class: "card" },
    el(
      "h3",
      {},
      `Allocated on ${one.device}`,
      el("small", {}, `peak ${show(one.peak_bytes, "bytes")} at ${show(peak.ts, "ns")}`),
    ),
    curves(list, "bytes", { mark: peak.ts >= 0 ? peak : null }),
    el("h3", {}, "Held at the peak"),
    stack(
      [{ name: "", whole: one.peak_bytes, parts: names.map((name, i) => ({ name, colour: i, ns: kinds[name] })) }],
      { unit: "bytes" },
    ),
    table(
      [
        { key: "operator", title: "Allocated by", unit: "text", code: true },
        { key: "category", title: "Category", unit: "text" },
        { key: "modules", title: "Module", unit: "text", code: true },
        { key: "blocks", title: "Blocks", unit: "count" },
        { key: "bytes", title: "Size", unit: "bytes" },
        { key: "share", title: "Share", unit: "share" },
      ],
      mine.map((row) => ({
        ...row,
        modules: row.modules.replaceAll("nn.Module: ", ""),
        share: row.bytes / (one.peak_bytes || 1),
      })),
      { sort: "bytes", name: `memory_holders ${one.device}` },
    ),
  );
}

function launchesSection(report, rank) {
  const { idle_causes, launches, queues, copies, sequences } = rank.analysis;
  if (!launches.length && !idle_causes.length && !copies.length) return null;
  const several = new Set(idle_causes.map((row) => row.device)).size > 1,
    stream = (row) => (several ? `GPU ${row.device} · stream ${row.stream}` : `stream ${row.stream}`),
    used = new Map(queues.map((row) => [stream(row), row])),
    often = sequences.filter((row) => row.count > 1),
    series = (kind) => rank.counters.filter((counter) => counter.kind === kind);
  const lanes = idle_causes.map((row) => {
    const queue = used.get(stream(row));
    return { ...row, stream: stream(row), longest: queue?.longest, mean: queue?.mean, full_ns: queue?.full_ns };
  });
  return section(
    "launches",
    "Launches, queues, copies",
    "Why streams wait, how long launches take and wait, how fast copies are, and which kernels operators launch in a row.",
    lanes.length
      ? card(
          "Why streams wait, and their queues",
          "host: launched late; kernel: under 30 ns behind the event before; a queue of 1,024 blocks the host",
          table(
            [
              { key: "stream", title: "Stream", unit: "text" },
              { key: "idle_ns", title: "Idle", unit: "ns" },
              { key: "host_wait_ns", title: "Host", unit: "ns", like: "idle_ns" },
              { key: "kernel_wait_ns", title: "Kernel", unit: "ns", like: "idle_ns" },
              { key: "other_ns", title: "Other", unit: "ns", like: "idle_ns" },
              { key: "longest", title: "Longest queue", unit: "count" },
              { key: "mean", title: "Mean queue", unit: "launches" },
              { key: "full_ns", title: "Queue full", unit: "ns" },
            ],
            lanes,
            { sort: "idle_ns", name: "idle_causes" },
          ),
        )
      : null,
    series("queue").length ? card("Launches in the queue", "launched and not begun", curves(series("queue"), "")) : null,
    launches.length
      ? card(
          "Launches",
          null,
          table(
            [
              { key: "call", title: "Call", unit: "text", code: true },
              { key: "count", title: "Events", unit: "count" },
              { key: "median_call_ns", title: "Call, median", unit: "ns" },
              { key: "median_delay_ns", title: "Delay, median", unit: "ns" },
              { key: "max_delay_ns", title: "Delay, longest", unit: "ns" },
              { key: "short", title: "Shorter than their call", unit: "count" },
              { key: "long_calls", title: "Calls over 50 µs", unit: "count" },
              { key: "long_delays", title: "Delays over 100 µs", unit: "count" },
            ],
            launches,
            { sort: "count", name: "launches" },
          ),
        )
      : null,
    copies.length
      ? card(
          "Copies and memsets",
          null,
          series("bandwidth").length ? curves(series("bandwidth"), "bytes/s") : null,
          table(
            [
              { key: "kind", title: "Kind", unit: "text" },
              { key: "device", title: "Device", unit: "count" },
              { key: "count", title: "Count", unit: "count" },
              { key: "bytes", title: "Bytes", unit: "bytes" },
              { key: "total_ns", title: "Sum of durations", unit: "ns" },
              { key: "busy_ns", title: "At least one", unit: "ns" },
              { key: "bytes_per_second", title: "Bandwidth", unit: "bytes/s" },
            ],
            copies,
            { sort: "bytes", name: "copies" },
          ),
        )
      : null,
    often.length
      ? card(
          "Sequences of kernels",
          "what one call of an operator launches, in order, where it recurs; candidates for fusion",
          table(
            [
              { key: "op", title: "Operator", unit: "text", code: true },
              { key: "count", title: "Calls", unit: "count" },
              { key: "gpu_ns", title: "GPU time", unit: "ns" },
              { key: "host_ns", title: "Host time", unit: "ns" },
              { key: "kernels", title: "Kernels", unit: "text", code: true },
            ],
            often,
            { sort: "gpu_ns", name: "sequences" },
          ),
        )
      : null,
  );
}
