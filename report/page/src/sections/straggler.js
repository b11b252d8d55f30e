/* The rank that the others wait for, in words. */

import { numberOf, show } from "../units.js";

/** @param {Rank} rank */
export function rankName(rank) {
  return rank.rank !== null && rank.label === String(rank.rank) ? `rank\u00a0${rank.rank}` : rank.label;
}

/**
 * The rank that makes the others wait longest, and how often it is last to arrive; null if no rank is known to wait.
 * @param {Report} report
 * @returns {{name: string, text: string} | null}
 */
export function stragglerOf({ job, many, ranks }) {
  if (many) {
    const late = many.quantities.find((one) => one.title === LATE),
      behind = (/** @type {number} */ rank) => late?.values[many.numbers.indexOf(rank)] ?? 0,
      [rank] = [...many.stragglers].sort((a, b) => behind(b) - behind(a));
    return rank === undefined ? null : { name: `rank ${rank}`, text: `comes to collectives ${show(behind(rank), "ns")} later than the median rank` };
  }
  const rows = job?.ranks ?? [],
    at = rows.reduce((worst, row, i) => (row.caused > (rows[worst]?.caused ?? 0) ? i : worst), -1);
  if (at < 0) return null;
  const { last, collectives, caused } = rows[at];
  return { name: rankName(ranks[at]), text: `is last in ${last} of ${numberOf(collectives, "collective")}; the others wait ${show(caused, "ns")}` };
}

const LATE = "comes later than the median rank"; // title of the quantity, see job_page.py
