/* What the page shows now: sections, tables and the timeline share it. */

/**
 * report: the data of the page.
 * timeline: of the rank that is shown, null without one.
 * cameFrom: the row or card that led to the timeline, for the way back.
 * draw: draws everything for a rank, and for one of its steps; set by main.js.
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

/** The timeline, for what is called only on a page with one. */
export function shownTimeline() {
  if (!page.timeline) throw new Error("the page has no timeline");
  return page.timeline;
}

/** Forget what is shown, before something else is drawn. */
export function forgetShown() {
  page.timeline = page.cameFrom = null;
  shownTables.clear();
  drawnOnPaper.clear();
}

/** An element of page.html. */
export const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** Tables that are shown: what finds a row, by name. @type {Map<string, TableFinder>} */
export const shownTables = new Map();

/** Functions that draw tables of which the screen does not show all rows. @type {Set<() => void>} */
export const drawnOnPaper = new Set();
