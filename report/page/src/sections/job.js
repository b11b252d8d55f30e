/* The ranks of a job side by side. */

import { el } from "../dom.js";
import { card, section, tile } from "../layout.js";
import { stack } from "../stack.js";
import { chooseRank } from "../steps.js";
import { tableCard } from "../table.js";
import { show } from "../units.js";
import { deviceParts } from "./overview.js";

/** @param {Rank} rank */
export function rankName(rank) {
  return rank.rank !== null && rank.label === String(rank.rank) ? `rank\u00a0${rank.rank}` : rank.label;
}

/** @param {Report} report */
export function jobSection(report) {
  if (report.ranks.length < 2) return null;
  const uses = report.ranks.map((rank) => ({ rank, use: deviceParts(rank) }));
  /** @type {Row[]} */
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
  const spread = (/** @type {string} */ key) => {
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
    tableCard("Numbers by rank", null, "ranks", rows, { sort: "name", click: (row) => chooseRank(row.place) }),
  );
}
