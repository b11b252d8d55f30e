/* The rank that other ranks wait for, in words. */

import { numberOf, show } from "../units.js";

/** @param {Rank} rank */
export function rankName(rank) {
  return rank.rank !== null && rank.label === String(rank.rank) ? `rank\u00a0${rank.rank}` : rank.label;
}

/**
 * The rank that other ranks wait for longest, and how often this rank arrives last; null if no waits are known.
 * @param {Report} report
 * @returns {{name: string, text: string} | null}
 */
export function stragglerOf({ job, many, ranks }) {
  if (many) {
    const table = many.tables.find((one) => one.name === "stragglers"),
      row = table?.rows.find(([rank]) => many.stragglers.includes(rank)),
      [collectives, last, caused] = ["collectives", "last", "caused"].map((title) => row?.[table?.columns.findIndex((one) => one.title === title) ?? 0]);
    return row ? { name: `rank ${row[0]}`, text: lateText(last, collectives, caused) } : null;
  }
  const rows = job?.ranks ?? [],
    at = rows.reduce((worst, row, i) => (row.caused > (rows[worst]?.caused ?? 0) ? i : worst), -1);
  return at < 0 ? null : { name: rankName(ranks[at]), text: lateText(rows[at].last, rows[at].collectives, rows[at].caused) };
}

/** @param {number} last @param {number} collectives @param {number} caused */
const lateText = (last, collectives, caused) => `is last in ${last} of ${numberOf(collectives, "collective")}; the others wait ${show(caused, "ns")}`;
