/* What the page shows now: sections, tables and the timeline share it. */

/**
 * report: the data of the page.
 * timeline: timeline of the shown rank, or null.
 * cameFrom: the row or card that led to the timeline, for going back.
 * draw: draws the page for a rank or one of its steps; set by main.js.
 * @type {{
 *   report: Report,
 *   timeline: import("./timeline/timeline.js").Timeline | null,
 *   cameFrom: HTMLElement | null,
 *   draw: (rank: number, step?: number | null) => Promise<void>,
 * }}
 */
export const page = {
  report: /** @type {any} */ (null),
  timeline: null,
  cameFrom: null,
  draw: async () => {},
};

/** The timeline; throws on a page without a timeline. */
export function shownTimeline() {
  if (!page.timeline) throw new Error("the page has no timeline");
  return page.timeline;
}

/** Forget the timeline and the tables before the next drawing. */
export function forgetShown() {
  page.timeline = page.cameFrom = null;
  shownTables.clear();
  drawnOnPaper.clear();
}

/** An element of page.html. */
export const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** Functions that find a row in a shown table, by table name. @type {Map<string, TableFinder>} */
export const shownTables = new Map();

/** Functions that draw all rows of long tables, for printing. @type {Set<() => void>} */
export const drawnOnPaper = new Set();
