/* What the devices do: time by module, operator and kernel; kernels against the roofs; idle time. */

function breakdownSection(report, rank) {
  const { tree, analysis } = rank;
  if (!tree.total_ns) return section("breakdown", "Device time", null, card(null, null, el("p", { class: "none" }, "The trace has no GPU events.")));
  const node = el("div"), kinds = report.gpu_kinds;
  const present = [...new Set(leaves(tree).map((leaf) => leaf.kind).filter((kind) => kind !== undefined))].sort((a, b) => a - b);
  chart(node, 460, () => ({
    tooltip: tooltip((item) => {
      const path = item.treePathInfo.slice(1).map((one) => one.name), of = item.data.of;
      return of ? tip(short(of.name, 200), [
        path.length > 1 ? ["in", short(path.slice(0, -1).join(" › "), 140)] : null, of.kind === undefined ? null : [of.level, kinds[of.kind].name],
        ["time", show(of.total_ns, "ns")], ["share", show(of.total_ns / tree.total_ns, "share")], ["GPU events", show(of.count, "count")],
      ].filter(Boolean)) : null;
    }),
    series: [{
      type: "treemap", data: (tree.children ?? []).map((child) => treemapNode(child, kinds)), left: 0, right: 0, top: 30, bottom: 0, leafDepth: levelsToShow(tree), roam: false, nodeClick: "zoomToNode",
      drillDownIcon: "", animationDuration: 200, visibleMin: 20,
      breadcrumb: { top: 0, left: 0, height: 22, itemStyle: { color: Theme.value("sunk"), borderColor: Theme.value("line"), textStyle: { color: Theme.value("text") } }, emphasis: { itemStyle: { color: Theme.value("accent-soft") } } },
      name: "All device time",
      label: { fontSize: 12, padding: [3, 5], lineHeight: 15, overflow: "truncate", formatter: (item) => `${short(item.name, 70)}\n${show(item.value, "ns")}` },
      upperLabel: { show: true, height: 20, color: Theme.value("text"), fontSize: 12, padding: [0, 6], formatter: (item) => `${short(item.name, 80)}  ${show(item.value / tree.total_ns, "share")}` },
      itemStyle: { gapWidth: 2, borderWidth: 0, borderColor: Theme.value("card") },
      levels: [{ itemStyle: { gapWidth: 3 }, upperLabel: { show: false } }, ...[1, 2, 3, 4, 5, 6, 7, 8].map(() => ({ itemStyle: { gapWidth: 2, borderWidth: 2, borderColor: Theme.value("sunk") } }))],
    }],
  }));
  return section("breakdown", "Device time", "By module, operator and kernel. A click goes into a part, the path above leads back.",
    el("div", { class: "card" }, el("div", { class: "legend", style: "margin-bottom:8px" }, present.map((kind) => el("span", {}, swatch(kinds[kind].colour), kinds[kind].name))), node),
    card("By operator and kernel", leftOut(rank, "breakdown"), table([
      { key: "kernel", title: "Kernel", unit: "text", code: true }, { key: "count", title: "Count", unit: "count" }, { key: "total_ns", title: "Total", unit: "ns" }, { key: "mean_ns", title: "Mean", unit: "ns" },
      { key: "share", title: "Share", unit: "share" }, { key: "op", title: "Operator", unit: "text", code: true }, { key: "modules", title: "In", unit: "text" },
      { key: "shapes", title: "Shapes", unit: "text" }, { key: "stream", title: "Stream", unit: "count" },
    ], analysis.breakdown, { sort: "total_ns", name: "breakdown" })));
}

/** So many levels at once that there is something to see, but no more than fit. */
function levelsToShow(tree) {
  let level = tree.children, depth = 1;
  while (depth < 6 && level.length < 24) {
    level = level.flatMap((branch) => branch.children ?? [branch]);
    depth += 1;
  }
  return depth;
}

function leaves(tree) {
  return tree.children ? tree.children.flatMap(leaves) : [tree];
}

/** ECharts' form of a branch; a group has the colour of what takes most of its time. */
function treemapNode(branch, kinds) {
  const children = branch.children?.map((child) => treemapNode(child, kinds));
  const weights = new Map();
  for (const leaf of leaves(branch)) weights.set(leaf.kind, (weights.get(leaf.kind) ?? 0) + leaf.total_ns);
  const kind = [...weights].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
  const colour = kind === undefined ? Theme.value("faint") : Theme.colour(kinds[kind].colour);
  return { name: branch.name, value: branch.total_ns, of: branch, children, itemStyle: { color: colour }, label: { color: ink(colour) } };
}

function leftOut(rank, name) {
  const rows = rank.left_out[name];
  return rows ? `${integers.format(rows)} rows with the least time are left out` : null;
}

function kernelsSection(report, rank) {
  const rows = rank.analysis.kernels.map((row, i) => ({ ...row, kind: rank.kernel_kinds[i], kindName: report.gpu_kinds[rank.kernel_kinds[i]].name }));
  if (!rows.length) return null;
  const points = rows.filter((row) => row.intensity && row.flops_per_second);
  const several = Object.keys(rank.analysis.devices).length > 1;
  return section("kernels", "Kernels and roofline", "Every kernel against what the device can do at best: below the slope it waits for memory, below the roof for arithmetic. Circles are larger the more time they take.",
    points.length ? rooflineCard(report, rank, points) : card("Roofline", null, el("p", { class: "none" }, "No kernel's FLOPs and bytes are known: the trace has no shapes (record_shapes), or only operators that move data.")),
    card("Kernels", leftOut(rank, "kernels"), table([
      { key: "kernel", title: "Kernel", unit: "text", code: true }, { key: "kindName", title: "Kind", unit: "text" }, { key: "dtype", title: "Type", unit: "text" },
      several ? { key: "device", title: "Device", unit: "count" } : null,
      { key: "count", title: "Count", unit: "count" }, { key: "total_ns", title: "Total", unit: "ns" }, { key: "mean_ns", title: "Mean", unit: "ns" },
      { key: "flops_per_second", title: "Rate", unit: "flop/s" }, { key: "flops_share", title: "of peak", unit: "share", hint: "FLOP/s against the device's peak for the element type" },
      { key: "bytes_per_second", title: "Memory", unit: "bytes/s", hint: "Bytes of inputs and outputs per second" }, { key: "bytes_share", title: "of bandwidth", unit: "share", hint: "Against the device's memory bandwidth; above 100 % the data came from caches" },
      { key: "intensity", title: "FLOP/byte" }, { key: "bound", title: "Bound by", unit: "text" },
      { key: "ops", title: "Operators", unit: "text", code: true },
    ].filter(Boolean), rows, { sort: "total_ns", name: "kernels" })));
}

function rooflineCard(report, rank, points) {
  const device = rank.analysis.devices[points[0].device], node = el("div"), kinds = report.gpu_kinds;
  const shown = points.filter((row) => row.device === points[0].device), types = [...new Set(shown.map((row) => row.dtype))];
  const roofs = device.tflops ? types.map((type) => [type, (device.tflops[type.startsWith("float8") ? "float8" : type] ?? (type === "tf32" ? device.tflops.float32 : null)) * 1e12]).filter((roof) => roof[1]) : [];
  const bandwidth = device.memory_gb_s ? device.memory_gb_s * 1e9 : null, highest = Math.max(0, ...roofs.map((roof) => roof[1]));
  const x = shown.map((row) => row.intensity), y = shown.map((row) => row.flops_per_second);
  const low = 10 ** Math.floor(Math.log10(Math.min(...x))), high = 10 ** Math.ceil(Math.log10(Math.max(...x, bandwidth ? (3 * highest) / bandwidth : 1)));
  const bottom = 10 ** Math.floor(Math.log10(Math.min(...y))), top = 10 ** Math.ceil(Math.log10(Math.max(...y, highest) * 1.01));
  const most = Math.max(...shown.map((row) => row.total_ns)), present = [...new Set(shown.map((row) => row.kind))].sort((a, b) => a - b);
  const bend = (roof) => roof / bandwidth;
  chart(node, 400, () => ({
    grid: { left: 84, right: 130, top: 16, bottom: 46 },
    tooltip: tooltip((item) => {
      const row = item.data.row;
      return row ? tip(short(row.kernel, 180), [
        ["operators", short(row.ops, 60)], ["element type", row.dtype || "–"], ["FLOP per byte", plain(row.intensity)], ["achieved", show(row.flops_per_second, "flop/s")], ["of peak", show(row.flops_share, "share")],
        ["memory", `${show(row.bytes_per_second, "bytes/s")} (${show(row.bytes_share, "share")})`], ["calls", show(row.count, "count")], ["total time", show(row.total_ns, "ns")], ["bound by", row.bound || "–"],
      ]) : null;
    }),
    xAxis: axis({ type: "log", min: low, max: high, name: "FLOP per byte", nameLocation: "middle", nameGap: 28, axisLabel: { formatter: power } }),
    yAxis: axis({ type: "log", min: bottom, max: top, axisLabel: { formatter: (value) => neat(value, "flop/s") } }),
    series: [
      ...roofs.map(([type, roof]) => ({
        type: "line", symbol: "none", silent: true, tooltip: { show: false }, lineStyle: { color: Theme.value("muted"), width: 1.5 }, z: 1,
        data: [...(bandwidth ? [[Math.max(low, bottom / bandwidth), Math.max(low * bandwidth, bottom)], [bend(roof), roof]] : [[low, roof]]), [high, roof]].filter((point) => point[0] >= low),
        endLabel: { show: true, formatter: `${type} ${neat(roof, "flop/s")}`, color: Theme.value("muted"), fontSize: 11.5 },
      })),
      roofs.length || !bandwidth ? null : { type: "line", symbol: "none", silent: true, lineStyle: { color: Theme.value("muted"), width: 1.5 }, data: [[low, low * bandwidth], [high, high * bandwidth]] },
      ...present.map((kind) => ({
        name: kinds[kind].name, type: "scatter", z: 3, itemStyle: { color: Theme.colour(kinds[kind].colour), opacity: 0.78, borderColor: Theme.value("card"), borderWidth: 1 },
        symbolSize: (_, item) => 7 + 26 * Math.sqrt(item.data.row.total_ns / most),
        data: shown.filter((row) => row.kind === kind).map((row) => ({ value: [row.intensity, row.flops_per_second], row })),
      })),
    ].filter(Boolean),
  }));
  const note = `${device.known_as ?? device.name ?? "device"}${bandwidth ? `, memory ${show(bandwidth, "bytes/s")}` : ", peaks unknown"} · ${shown.length} of ${rank.analysis.kernels.length} kernels, those whose FLOPs and bytes are known`;
  return el("div", { class: "card" }, el("h3", {}, "Roofline", el("small", {}, note)), el("div", { class: "legend" }, present.map((kind) => el("span", {}, swatch(kinds[kind].colour), kinds[kind].name))), node);
}

function power(value) {
  const digits = Math.round(Math.log10(value));
  return digits >= 4 || digits <= -3 ? `10${[...String(digits)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}` : String(value);
}

function idleSection(report, rank) {
  const { streams, device_use, iteration_list } = rank.analysis;
  if (!streams.length) return null;
  const several = device_use.length > 1, name = (use) => (several ? `GPU ${use.device} · stream ${use.stream}` : `stream ${use.stream}`);
  const bars = [...streams].sort((a, b) => b.busy_ns - a.busy_ns).slice(0, 12);
  const gaps = rank.gaps.map((gap) => ({ ...gap, cause: gap.launch_ns === null ? "launch not in the trace" : gap.launch_ns > 0 ? "host launched late" : "already launched" }));
  const iterations = iteration_list.length ? iterationsCard(rank) : null;
  return section("idle", "Idle and overlap", "How much of the time each stream works, what runs at the same time, and where the longest gaps are.",
    el("div", { class: "columns" },
      el("div", { class: `card ${iterations ? "span-6" : "span-12"}` }, el("h3", {}, "Streams", streams.length > bars.length ? el("small", {}, `the ${bars.length} busiest of ${streams.length}`) : null),
        stack(bars.map((use) => ({ name: name(use), whole: use.window_ns, parts: [{ name: "Busy", colour: 0, ns: use.busy_ns }, { name: "Idle", colour: 9, ns: use.idle_ns }] })))),
      iterations),
    card("Devices", null, table([
      { key: "device", title: "Device", unit: "count" }, { key: "window_ns", title: "Window", unit: "ns" }, { key: "busy_ns", title: "Busy", unit: "ns" }, { key: "idle_ns", title: "Idle", unit: "ns" },
      { key: "overlapped_ns", title: "Two streams or more", unit: "ns" }, { key: "compute_ns", title: "Computing", unit: "ns" }, { key: "copy_ns", title: "Copying", unit: "ns" },
      { key: "communication_ns", title: "Communicating", unit: "ns" }, { key: "exposed_communication_ns", title: "of it exposed", unit: "ns", hint: "With no computing kernel beside it" },
    ], device_use, { sort: "busy_ns", filter: false, name: "device_use" })),
    card("Streams in numbers", null, table([
      several ? { key: "device", title: "Device", unit: "count" } : null, { key: "stream", title: "Stream", unit: "count" }, { key: "events", title: "Events", unit: "count" },
      { key: "total_ns", title: "Sum of events", unit: "ns" }, { key: "busy_ns", title: "Busy", unit: "ns" }, { key: "idle_ns", title: "Idle", unit: "ns" }, { key: "share", title: "Busy", unit: "share" },
    ].filter(Boolean), streams.map((use) => ({ ...use, share: use.busy_ns / (use.window_ns || 1) })), { sort: "busy_ns", name: "streams" })),
    gaps.length ? card("Longest gaps", "a click on a row shows it in the timeline", table([
      { key: "idle_ns", title: "Idle", unit: "ns" }, { key: "start", title: "At", unit: "ns" }, { key: "cause", title: "Cause", unit: "text", hint: "Whether the next event had been launched when the gap began" },
      { key: "launch_ns", title: "Launched after", unit: "ns", hint: "From the gap's start to the launch of the event that ends it" },
      { key: "launched_by", title: "Next operator", unit: "text", code: true }, { key: "after", title: "Next event", unit: "text", code: true }, { key: "before", title: "Event before", unit: "text", code: true },
    ], gaps, { sort: "idle_ns", name: "gaps", click: (gap) => showInTimeline(gap.start - gap.idle_ns * 0.15, gap.start + gap.idle_ns * 1.15) })) : null);
}

function iterationsCard(rank) {
  const rows = rank.analysis.iteration_list, node = el("div"), names = rows.map((row) => row.name);
  const bar = (name, colour, value) => ({ name, type: "bar", stack: "all", barMaxWidth: 46, itemStyle: { color: colour() }, data: rows.map(value) });
  chart(node, 210, () => ({
    grid: { left: 62, right: 10, top: 12, bottom: 26 },
    tooltip: tooltip((item) => { const row = rows[item.dataIndex]; return tip(row.name, [["length", show(row.latency_ns, "ns")], ["a device busy", show(row.gpu_ns, "ns")], ["share", show(row.gpu_ns / (row.latency_ns || 1), "share")]]); }),
    xAxis: axis({ type: "category", data: names, splitLine: { show: false }, axisLabel: { hideOverlap: true, formatter: (name) => name.replace("ProfilerStep#", "step ") } }),
    yAxis: axis({ type: "value", splitNumber: 4, axisLabel: { formatter: (value) => neat(value, "ns") } }),
    series: [bar("GPU busy", () => Theme.colour(0), (row) => row.gpu_ns), bar("GPU idle", () => Theme.value("line"), (row) => row.latency_ns - row.gpu_ns)],
  }));
  const patch = swatch(0);
  patch.style.background = "var(--line)";
  return el("div", { class: "card span-6" }, el("h3", {}, "Iterations", el("small", {}, `mean ${show(rank.analysis.iterations.mean_latency_ns, "ns")}`)), node,
    el("div", { class: "legend" }, el("span", {}, swatch(0), "GPU busy"), el("span", {}, patch, "GPU idle")));
}
