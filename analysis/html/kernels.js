/* Kernels against what the device can do at best. */

function kernelsSection(report, rank) {
  const rows = rank.analysis.kernels.map((row, i) => ({
    ...row,
    kind: rank.kernel_kinds[i],
    kindName: report.gpu_kinds[rank.kernel_kinds[i]].name,
  }));
  if (!rows.length) return null;
  const points = rows.filter((row) => row.intensity && row.flops_per_second);
  const several = Object.keys(rank.analysis.devices).length > 1;
  return section(
    "kernels",
    "Kernels and roofline",
    "Every kernel against what the device can do at best: below the slope it waits for memory, below the roof for arithmetic. Circles are larger the more time they take.",
    points.length
      ? rooflineCard(report, rank, points)
      : card(
          "Roofline",
          null,
          el(
            "p",
            { class: "none" },
            "No kernel's FLOPs and bytes are known: the trace has no shapes (record_shapes), or only operators that move data.",
          ),
        ),
    card(
      "Kernels",
      leftOut(rank, "kernels"),
      table(
        [
          { key: "kernel", title: "Kernel", unit: "text", code: true },
          { key: "kindName", title: "Kind", unit: "text" },
          { key: "dtype", title: "Type", unit: "text" },
          several ? { key: "device", title: "Device", unit: "count" } : null,
          { key: "count", title: "Count", unit: "count" },
          { key: "total_ns", title: "Total", unit: "ns" },
          { key: "mean_ns", title: "Mean", unit: "ns" },
          { key: "flops_per_second", title: "Rate", unit: "flop/s" },
          {
            key: "operator_flops_per_second",
            title: "of operator",
            unit: "flop/s",
            hint: "The operators' FLOPs over the time of all their kernels, not of this one alone",
          },
          {
            key: "flops_share",
            title: "of peak",
            unit: "share",
            hint: "FLOP/s against the device's peak for the element type",
          },
          { key: "bytes_per_second", title: "Memory", unit: "bytes/s", hint: "Bytes of inputs and outputs per second" },
          {
            key: "bytes_share",
            title: "of bandwidth",
            unit: "share",
            hint: "Against the device's memory bandwidth; above 100 % the data came from caches",
          },
          { key: "intensity", title: "FLOP/byte" },
          { key: "bound", title: "Bound by", unit: "text" },
          { key: "ops", title: "Operators", unit: "text", code: true },
        ].filter(Boolean),
        rows,
        { sort: "total_ns", name: "kernels" },
      ),
    ),
    rank.analysis.gemms.length ? gemmsCard(rank, several) : null,
  );
}

function gemmsCard(rank, several) {
  return card(
    "Matrix products",
    leftOut(rank, "gemms") ?? "batch × (m, k) · (k, n), over the time of all kernels of the operator",
    table(
      [
        { key: "op", title: "Operator", unit: "text", code: true },
        { key: "dtype", title: "Type", unit: "text" },
        several ? { key: "device", title: "Device", unit: "count" } : null,
        ...["batch", "m", "n", "k"].map((key) => ({ key, title: key, unit: "count" })),
        { key: "count", title: "Count", unit: "count" },
        { key: "total_ns", title: "Total", unit: "ns" },
        { key: "mean_ns", title: "Mean", unit: "ns" },
        { key: "flops_per_second", title: "Rate", unit: "flop/s" },
        {
          key: "flops_share",
          title: "of peak",
          unit: "share",
          hint: "The efficiency: FLOP/s against the device's peak",
        },
        { key: "bytes_per_second", title: "Memory", unit: "bytes/s", hint: "Inputs and outputs once" },
        { key: "bytes_share", title: "of bandwidth", unit: "share" },
        { key: "bound", title: "Bound by", unit: "text" },
        { key: "kernels", title: "Kernels", unit: "text", code: true },
      ].filter(Boolean),
      rank.analysis.gemms,
      { sort: "total_ns", name: "gemms" },
    ),
  );
}

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
    present = [...new Set(shown.map((row) => row.kind))].sort((a, b) => a - b);
  const bend = (roof) => roof / bandwidth;
  chart(node, 400, () => ({
    grid: { left: 84, right: 130, top: 16, bottom: 46 },
    tooltip: tooltip((item) => {
      const row = item.data.row;
      return row
        ? tip(short(row.kernel, 180), [
            ["operators", short(row.ops, 60)],
            ["element type", row.dtype || "–"],
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
    yAxis: axis({ type: "log", min: bottom, max: top, axisLabel: { formatter: (value) => neat(value, "flop/s") } }),
    series: [
      ...roofs.map(([type, roof]) => ({
        type: "line",
        symbol: "none",
        silent: true,
        tooltip: { show: false },
        lineStyle: { color: Theme.value("muted"), width: 1.5 },
        z: 1,
        data: [
          ...(bandwidth
            ? [
                [Math.max(low, bottom / bandwidth), Math.max(low * bandwidth, bottom)],
                [bend(roof), roof],
              ]
            : [[low, roof]]),
          [high, roof],
        ].filter((point) => point[0] >= low),
        endLabel: {
          show: true,
          formatter: `${type} ${neat(roof, "flop/s")}`,
          color: Theme.value("muted"),
          fontSize: 11.5,
        },
      })),
      roofs.length || !bandwidth
        ? null
        : {
            type: "line",
            symbol: "none",
            silent: true,
            lineStyle: { color: Theme.value("muted"), width: 1.5 },
            data: [
              [low, low * bandwidth],
              [high, high * bandwidth],
            ],
          },
      ...present.map((kind) => ({
        name: kinds[kind].name,
        type: "scatter",
        z: 3,
        itemStyle: {
          color: Theme.colour(kinds[kind].colour),
          opacity: 0.78,
          borderColor: Theme.value("card"),
          borderWidth: 1,
        },
        symbolSize: (_, item) => 7 + 26 * Math.sqrt(item.data.row.total_ns / most),
        data: shown
          .filter((row) => row.kind === kind)
          .map((row) => ({ value: [row.intensity, row.flops_per_second], row })),
      })),
    ].filter(Boolean),
  }));
  const note = `${device.known_as ?? device.name ?? "device"}${bandwidth ? `, memory ${show(bandwidth, "bytes/s")}` : ", peaks unknown"} · ${shown.length} of ${rank.analysis.kernels.length} kernels, those whose FLOPs and bytes are known`;
  return el(
    "div",
    { class: "card" },
    el("h3", {}, "Roofline", el("small", {}, note)),
    el(
      "div",
      { class: "legend" },
      present.map((kind) => el("span", {}, swatch(kinds[kind].colour), kinds[kind].name)),
    ),
    node,
  );
}

function power(value) {
  const digits = Math.round(Math.log10(value));
  return digits >= 4 || digits <= -3
    ? `10${[...String(digits)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`
    : String(value);
}
