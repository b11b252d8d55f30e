/* The ranks of a job side by side, and the stacked bars that show parts of a time. */

const LABEL_PX = 24;

/** Stacked horizontal bars: rows of {name, whole, parts: [{name, colour, ns}]}; parts of a name share their colour. */
function stack(rows, { unit = "ns", click = null, height = rows.length > 24 ? 18 : 30 } = {}) {
  const names = [
    ...new Map(rows.flatMap((row) => row.parts.filter((part) => part.ns > 0).map((part) => [part.name, part.colour]))),
  ];
  const node = el("div"),
    shown = rows.slice().reverse(),
    labelled = rows.some((row) => row.name);
  chart(
    node,
    Math.max(34, rows.length * height) + (labelled ? 26 : 0),
    () => ({
      grid: {
        left: 0,
        right: 8,
        top: 0,
        bottom: 0,
        outerBoundsMode: "same",
        outerBounds: { left: 0, right: 8, top: 0, bottom: 0 },
      },
      tooltip: tooltip((item) => {
        const row = shown[item.dataIndex],
          part = row.parts.find((of) => of.name === item.seriesName);
        return tip(row.name ? `${row.name}: ${part.name}` : part.name, [
          [unit === "ns" ? "time" : "size", show(part.ns, unit)],
          ["share", show(part.ns / (row.whole || 1), "share")],
        ]);
      }),
      xAxis: axis({
        type: "value",
        max: Math.max(...rows.map((row) => row.whole)) || 1,
        show: labelled,
        splitNumber: 6,
        splitLine: { show: labelled, lineStyle: { color: Theme.value("line") } },
        axisLabel: { formatter: (value) => neat(value, unit), hideOverlap: true },
      }),
      yAxis: axis({
        type: "category",
        data: shown.map((row) => short(row.name, 26)),
        show: labelled,
        axisLine: { show: false },
      }),
      series: names.map(([name, colour]) => ({
        name,
        type: "bar",
        stack: "all",
        barWidth: height < LABEL_PX ? height - 5 : height - 10,
        barMinHeight: 0,
        itemStyle: {
          color: name === "Idle" ? Theme.value("line") : Theme.colour(colour),
          borderColor: Theme.value("card"),
          borderWidth: 0.5,
        },
        data: shown.map((row) => row.parts.find((part) => part.name === name)?.ns ?? 0),
        label: {
          show: height >= LABEL_PX,
          color: name === "Idle" ? Theme.value("muted") : ink(Theme.colour(colour)),
          fontSize: 11.5,
          overflow: "truncate",
          formatter: (item) => {
            const share = item.value / (Math.max(...rows.map((row) => row.whole)) || 1);
            return share > 0.06 ? `${percent(item.value / (shown[item.dataIndex].whole || 1))} %` : "";
          },
        },
      })),
    }),
    (instance) => {
      if (click) instance.on("click", (item) => click(shown.length - 1 - item.dataIndex));
    },
  );
  const legend = names.map(([name, colour]) => {
    const patch = swatch(colour),
      sum = rows.length === 1 ? rows[0].parts.find((part) => part.name === name).ns : null;
    if (name === "Idle") patch.style.background = "var(--line)";
    return el("span", {}, patch, name, sum === null ? null : ` ${show(sum, unit)}`);
  });
  return el("div", {}, node, el("div", { class: "legend" }, legend));
}

function jobSection(report) {
  if (report.ranks.length < 2) return null;
  const uses = report.ranks.map((rank) => ({ rank, use: deviceParts(rank) }));
  const rows = uses.map(({ rank, use }, place) => ({
    place,
    name: rank.rank !== null && rank.label === String(rank.rank) ? `rank\u00a0${rank.rank}` : rank.label,
    file: rank.file,
    span: rank.span_ns,
    latency: rank.analysis.iterations.mean_latency_ns,
    busy: use.window ? use.busy / use.window : null,
    computing: use.window ? use.parts[0].ns + use.hidden : null,
    communication: use.hidden + use.parts[2].ns,
    exposed: use.parts[2].ns,
    idle: use.parts[4].ns,
    waiting: null,
    events: rank.gpu_events,
    linked: rank.coverage ? rank.coverage.linked / (rank.coverage.total || 1) : null,
  }));
  const least = Math.min(...rows.map((row) => row.communication));
  for (const row of rows) row.waiting = row.communication - least;
  const spread = (key) => {
    const values = rows.map((row) => row[key]).filter((value) => value !== null);
    return values.length ? Math.max(...values) - Math.min(...values) : null;
  };
  const slowest = rows.reduce((a, b) => (b.communication < a.communication ? b : a));
  const any = rows.some((row) => row.communication > 0);
  const choose = (place) => {
    $("rank").value = place;
    draw(report.ranks[place]);
  };
  return section(
    "job",
    "Ranks",
    "The ranks of the job side by side. A click on a bar shows that rank in the sections below.",
    el(
      "div",
      { class: "tiles" },
      tile(
        "Ranks",
        String(rows.length),
        `${show(
          rows.reduce((sum, row) => sum + row.events, 0),
          "count",
        )} GPU events`,
      ),
      tile(
        "Longest trace",
        show(Math.max(...rows.map((row) => row.span)), "ns"),
        `${show(spread("span"), "ns")} longer than the shortest`,
      ),
      tile("Spread of computing", show(spread("computing"), "ns"), "most less least of all ranks"),
      any ? tile("Last to arrive", slowest.name, "shortest in communication: the others wait for it") : null,
    ),
    card(
      "Device time by rank",
      null,
      stack(
        uses.map(({ rank, use }, i) => ({ name: rows[i].name, parts: use.parts, whole: use.window })),
        { click: choose },
      ),
    ),
    card(
      "Numbers by rank",
      null,
      table(
        [
          { key: "name", title: "Rank", unit: "text" },
          { key: "file", title: "File", unit: "text" },
          { key: "span", title: "Length", unit: "ns" },
          { key: "latency", title: "Mean iteration", unit: "ns" },
          { key: "busy", title: "GPU busy", unit: "share" },
          { key: "computing", title: "Computing", unit: "ns" },
          { key: "communication", title: "Communicating", unit: "ns" },
          { key: "exposed", title: "Exposed", unit: "ns", hint: "Communication with no computing kernel beside it" },
          {
            key: "waiting",
            title: "Beyond the least",
            unit: "ns",
            hint: "Communication time beyond that of the rank with the least: time spent waiting for others",
          },
          { key: "idle", title: "Idle", unit: "ns" },
          { key: "events", title: "GPU events", unit: "count" },
          { key: "linked", title: "Linked", unit: "share" },
        ],
        rows,
        { sort: "name", name: "ranks" },
      ),
    ),
  );
}
