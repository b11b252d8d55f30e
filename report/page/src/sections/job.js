/* The ranks of a job side by side. */

import { el } from "../dom.js";
import { card, section, tile } from "../layout.js";
import { stack } from "../stack.js";
import { chooseRank } from "../steps.js";
import { tableCard } from "../table.js";
import { numberOf, show } from "../units.js";
import { deviceParts } from "./overview.js";
import { rankName, stragglerOf } from "./straggler.js";

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
  const late = stragglerOf(report),
    events = rows.reduce((sum, row) => sum + row.events, 0),
    longest = Math.max(...rows.map((row) => row.span));
  return section(
    "job",
    "Ranks",
    "Click a bar to show that rank in the other sections.",
    el(
      "div",
      { class: "tiles" },
      tile("Ranks", String(rows.length), numberOf(events, "GPU event")),
      tile("Longest trace", show(longest, "ns"), `${show(spread("span"), "ns")} longer than the shortest`),
      tile("Spread of computing", show(spread("computing"), "ns"), "between the most and the least busy rank"),
      late ? tile("Straggler", late.name, late.text) : null,
    ),
    card(
      "GPU time by rank",
      null,
      stack(
        uses.map(({ rank, use }, i) => ({ name: rows[i].name, parts: use.parts, whole: use.window })),
        { click: chooseRank },
      ),
    ),
    tableCard("Numbers by rank", null, "ranks", rows, { sort: "name", click: (row) => chooseRank(row.place) }),
  );
}
