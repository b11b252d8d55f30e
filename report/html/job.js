/* The ranks of a job side by side, and the stacked bars that show parts of a time. */

const LABEL_PX = 24;
const WAITING_HINT = "Communication time beyond that of the rank with the least: time spent waiting for others";

/** Stacked horizontal bars: rows of {name, whole, parts: [{name, colour, ns}]}; parts of a name share their colour. */
function stack(rows, { unit = "ns", click = null } = {}) {
  const names = [
    ...new Map(rows.flatMap((row) => row.parts.filter((part) => part.ns > 0).map((part) => [part.name, part.colour]))),
  ];
  const node = el("div"),
    height = rows.length > 24 ? 18 : 30,
    shown = rows.slice().reverse(),
    widest = Math.max(...rows.map((row) => row.whole)) || 1,
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
        max: widest,
        show: labelled,
        splitNumber: 6,
        splitLine: { show: labelled, lineStyle: { color: Theme.value("line") } },
        unit,
        axisLabel: { hideOverlap: true },
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
        itemStyle: { color: fillOf(colour), borderColor: Theme.value("card"), borderWidth: 0.5 },
        data: shown.map((row) => row.parts.find((part) => part.name === name)?.ns ?? 0),
        label: {
          show: height >= LABEL_PX,
          color: colour === "line" ? Theme.value("muted") : ink(Theme.colour(colour)),
          fontSize: 11.5,
          overflow: "truncate",
          formatter: (item) =>
            item.value / widest > 0.06 ? `${percent(item.value / (shown[item.dataIndex].whole || 1))} %` : "",
        },
      })),
    }),
    (instance) => {
      if (click) instance.on("click", (item) => click(shown.length - 1 - item.dataIndex));
    },
  );
  const sum = (name) => ` ${show(rows[0].parts.find((part) => part.name === name).ns, unit)}`;
  const kinds = names.map(([name, colour]) => ({ name: rows.length === 1 ? name + sum(name) : name, colour }));
  return el("div", {}, node, legend(kinds));
}

function rankName(rank) {
  return rank.rank !== null && rank.label === String(rank.rank) ? `rank\u00a0${rank.rank}` : rank.label;
}

function jobSection(report) {
  if (report.ranks.length < 2) return null;
  const uses = report.ranks.map((rank) => ({ rank, use: deviceParts(rank) }));
  const rows = uses.map(({ rank, use }, place) => ({
    place,
    name: rankName(rank),
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
  const any = rows.some((row) => row.communication > 0),
    events = rows.reduce((sum, row) => sum + row.events, 0),
    longest = Math.max(...rows.map((row) => row.span));
  return section(
    "job",
    "Ranks",
    "The ranks of the job side by side. A click on a bar shows that rank in the sections below.",
    el(
      "div",
      { class: "tiles" },
      tile("Ranks", String(rows.length), `${show(events, "count")} GPU events`),
      tile("Longest trace", show(longest, "ns"), `${show(spread("span"), "ns")} longer than the shortest`),
      tile("Spread of computing", show(spread("computing"), "ns"), "between the ranks that compute most and least"),
      any ? tile("Last to arrive", slowest.name, "shortest in communication: the others wait for it") : null,
    ),
    card(
      "Device time by rank",
      null,
      stack(
        uses.map(({ rank, use }, i) => ({ name: rows[i].name, parts: use.parts, whole: use.window })),
        { click: chooseRank },
      ),
    ),
    tableCard(
      "Numbers by rank",
      null,
      [
        col.text("name", "Rank"), col.text("file", "File"), col.ns("span", "Length"),
        col.ns("latency", "Mean iteration"), col.share("busy", "GPU busy"), col.ns("computing", "Computing"),
        col.ns("communication", "Communicating"),
        col.ns("exposed", "Exposed", { hint: "Communication with no computing kernel beside it" }),
        col.ns("waiting", "Beyond the least", { hint: WAITING_HINT }), col.ns("idle", "Idle"),
        col.count("events", "GPU events"), col.share("linked", "Linked"),
      ],
      rows,
      { sort: "name", name: "ranks", click: (row) => chooseRank(row.place) },
    ),
  );
}
