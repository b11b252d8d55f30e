/* Ranks on one clock, their collectives, and which ranks wait for which. */

import { drawnWithCharts, legend } from "../chart.js";
import { card, section } from "../layout.js";
import { chooseRank } from "../steps.js";
import { tableCard } from "../table.js";
import { integers, numberOf } from "../units.js";
import { JOINED, RANK_KINDS, RankAxis, WAIT } from "./rank_axis.js";
import { rankName } from "./straggler.js";

/** @param {Report} report */
export function ranksSection(report) {
  const job = report.job;
  if (!job) return null;
  const labels = report.ranks.map(rankName),
    place = job.ranks[0].begin - job.ranks[0].first,
    iterations = report.ranks[0].analysis.iteration_list.map((one) => ({
      name: one.name,
      start: one.start + place,
      end: one.end + place,
    })),
    axis = new RankAxis(job, labels, iterations),
    rows = job.ranks.map((rank, at) => ({ ...rank, at, label: labels[at] })),
    waits = job.collectives.map((one, at) => ({
      at,
      kind: one.kind,
      group: one.group,
      bytes: one.bytes < 0 ? null : one.bytes,
      start: Math.min(...one.start),
      length: Math.max(...one.end) - Math.min(...one.start),
      waited: one.wait?.reduce((sum, wait) => sum + wait, 0) ?? null,
      longest: one.wait ? Math.max(...one.wait) : null,
      last: one.last === null ? null : labels[one.last],
    }));
  if (report.ranks[0].step && iterations.length) {
    const { start, end } = iterations[0];
    axis.whole = { from: start, to: end };
    axis.view(start, end);
  }
  drawnWithCharts(axis);
  const kinds = RANK_KINDS.filter((_, at) => job.ranks.some((rank) => rank.kind.includes(at)));
  const goTo = (/** @type {Row} */ row) => {
    axis.node.scrollIntoView({ block: "nearest" });
    axis.go(row.at);
  };
  const clocks = rows.some((row) => row.offset !== null)
    ? "Clocks are aligned by collectives that end on all ranks at the same time."
    : "No collective connects the ranks, so the clocks are as recorded.";
  const missing = [
    job.left_out ? `${numberOf(job.left_out, "collective")} with the shortest waits ${job.left_out === 1 ? "is" : "are"} not shown` : null,
    job.unmatched ? `${numberOf(job.unmatched, "collective")} ${job.unmatched === 1 ? "differs" : "differ"} between the ranks of the group` : null,
  ].filter(Boolean);
  const whose = report.many
    ? `Streams of ${job.ranks.length} of ${integers.format(report.many.numbers.length)} ranks,`
    : "Streams of all ranks,";
  return section(
    "axis",
    "Ranks on one clock",
    `${whose} with their collectives below. A triangle marks the rank that arrived last. ${clocks}`,
    card(null, null, legend([...kinds, JOINED, WAIT]), axis.node),
    tableCard(
      "Collectives",
      missing.join("; ") || "click a row to show it above",
      "collectives",
      waits,
      { sort: "waited", click: goTo },
    ),
    tableCard(
      "Who waits for whom",
      null,
      "waits",
      rows,
      { sort: "caused", filter: false, click: (row) => chooseRank(row.at) },
    ),
  );
}
