/* How busy devices and streams are, how long iterations last, where the longest gaps are. */

const SPAN_HINT = "From the device's first GPU event to the end of its last one";

function idleSection(report, rank) {
  const { streams, device_use, iteration_list } = rank.analysis;
  if (!streams.length) return null;
  const several = device_use.length > 1,
    name = (use) => (several ? `GPU ${use.device} · stream ${use.stream}` : `stream ${use.stream}`);
  const bars = [...streams].sort((a, b) => b.busy_ns - a.busy_ns).slice(0, 12);
  const gaps = rank.gaps.map((gap) => ({
    ...gap,
    cause:
      gap.launch_ns === null
        ? "launch not in the trace"
        : gap.launch_ns > 0
          ? "host launched late"
          : "already launched",
  }));
  const iterations = iteration_list.length ? iterationsCard(rank) : null;
  return section(
    "idle",
    "Idle and overlap",
    "How much of the time each stream works, what runs at the same time, and where the longest gaps are.",
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        { class: `card ${iterations ? "span-6" : "span-12"}` },
        el(
          "h3",
          {},
          "Streams",
          streams.length > bars.length ? el("small", {}, `the ${bars.length} busiest of ${streams.length}`) : null,
        ),
        stack(
          bars.map((use) => ({
            name: name(use),
            whole: use.window_ns,
            parts: [
              { name: "Busy", colour: 0, ns: use.busy_ns },
              { name: "Idle", colour: 9, ns: use.idle_ns },
            ],
          })),
        ),
      ),
      iterations,
    ),
    card(
      "Devices",
      null,
      table(
        [
          { key: "device", title: "Device", unit: "count" },
          { key: "window_ns", title: "Window", unit: "ns" },
          { key: "busy_ns", title: "Busy", unit: "ns" },
          { key: "idle_ns", title: "Idle", unit: "ns" },
          { key: "busy_share", title: "Busy", unit: "share" },
          { key: "busy_share_of_gpu_span", title: "of GPU span", unit: "share", hint: SPAN_HINT },
          { key: "overlapped_ns", title: "Two streams or more", unit: "ns" },
          { key: "compute_ns", title: "Computing", unit: "ns" },
          { key: "copy_ns", title: "Copying", unit: "ns" },
          { key: "communication_ns", title: "Communicating", unit: "ns" },
          {
            key: "exposed_communication_ns",
            title: "of it exposed",
            unit: "ns",
            hint: "With no computing kernel beside it",
          },
        ],
        device_use,
        { sort: "busy_ns", filter: false, name: "device_use" },
      ),
    ),
    card(
      "Streams in numbers",
      null,
      table(
        [
          several ? { key: "device", title: "Device", unit: "count" } : null,
          { key: "stream", title: "Stream", unit: "count" },
          { key: "events", title: "Events", unit: "count" },
          { key: "total_ns", title: "Sum of events", unit: "ns" },
          { key: "busy_ns", title: "Busy", unit: "ns" },
          { key: "idle_ns", title: "Idle", unit: "ns" },
          { key: "busy_share", title: "Busy", unit: "share" },
          { key: "busy_share_of_gpu_span", title: "of GPU span", unit: "share", hint: SPAN_HINT },
        ].filter(Boolean),
        streams,
        { sort: "busy_ns", name: "streams" },
      ),
    ),
    gaps.length
      ? card(
          "Longest gaps",
          "a click on a row shows it in the timeline",
          table(
            [
              { key: "idle_ns", title: "Idle", unit: "ns" },
              { key: "start", title: "At", unit: "ns" },
              {
                key: "cause",
                title: "Cause",
                unit: "text",
                hint: "Whether the next event had been launched when the gap began",
              },
              {
                key: "launch_ns",
                title: "Launched after",
                unit: "ns",
                hint: "From the gap's start to the launch of the event that ends it",
              },
              { key: "launched_by", title: "Next operator", unit: "text", code: true },
              { key: "after", title: "Next event", unit: "text", code: true },
              { key: "before", title: "Event before", unit: "text", code: true },
            ],
            gaps,
            {
              sort: "idle_ns",
              name: "gaps",
              click: (gap) => showInTimeline(gap.start - gap.idle_ns * 0.15, gap.start + gap.idle_ns * 1.15),
            },
          ),
        )
      : null,
  );
}

function iterationsCard(rank) {
  const rows = rank.analysis.iteration_list,
    node = el("div"),
    names = rows.map((row) => row.name);
  const bar = (name, colour, value) => ({
    name,
    type: "bar",
    stack: "all",
    barMaxWidth: 46,
    itemStyle: { color: colour() },
    data: rows.map(value),
  });
  chart(node, 210, () => ({
    grid: { left: 62, right: 10, top: 12, bottom: 26 },
    tooltip: tooltip((item) => {
      const row = rows[item.dataIndex];
      return tip(row.name, [
        ["length", show(row.latency_ns, "ns")],
        ["a device busy", show(row.gpu_ns, "ns")],
        ["share", show(row.gpu_ns / (row.latency_ns || 1), "share")],
      ]);
    }),
    xAxis: axis({
      type: "category",
      data: names,
      splitLine: { show: false },
      axisLabel: { hideOverlap: true, formatter: (name) => name.replace("ProfilerStep#", "step ") },
    }),
    yAxis: axis({ type: "value", splitNumber: 4, axisLabel: { formatter: (value) => neat(value, "ns") } }),
    series: [
      bar(
        "GPU busy",
        () => Theme.colour(0),
        (row) => row.gpu_ns,
      ),
      bar(
        "GPU idle",
        () => Theme.value("line"),
        (row) => row.latency_ns - row.gpu_ns,
      ),
    ],
  }));
  const patch = swatch(0);
  patch.style.background = "var(--line)";
  return el(
    "div",
    { class: "card span-6" },
    el("h3", {}, "Iterations", el("small", {}, `mean ${show(rank.analysis.iterations.mean_latency_ns, "ns")}`)),
    node,
    el("div", { class: "legend" }, el("span", {}, swatch(0), "GPU busy"), el("span", {}, patch, "GPU idle")),
  );
}
