/* From a row of a table or a finding to its place in the timeline, and from an event back to its rows. */

import { bringIntoView, el } from "../dom.js";
import { classesOf, shortenedName } from "../names.js";
import { column } from "../packed.js";
import { page, shownTables, shownTimeline } from "../state.js";
import { isText } from "../units.js";
import { eventsOf, Hits, longestGap, longestOf } from "./events.js";

/**
 * Show a place in the timeline; `goBack` returns to the element that led there.
 * @param {Place} place
 * @param {HTMLElement | null} from
 */
export async function jumpTo(place, from = null) {
  const { timeline } = page;
  if (!timeline) return;
  page.cameFrom = from;
  if (place.from !== undefined || !timeline.inspector) return jumpToTime(place);
  /** @type {number[]} */
  let hits = [];
  /** @type {number | null | undefined} */
  let number = place.event;
  if (number === undefined) {
    let found = await eventsOf(timeline, place);
    if (!found.length && place.orElse?.from !== undefined) return jumpToTime(place.orElse);
    if (!found.length && place.orElse) found = await eventsOf(timeline, place.orElse);
    const gap = place.gap ? longestGap(found) : null;
    if (gap) return jumpToTime(gap);
    hits = found.map((one) => one.number);
    number = (await longestOf(timeline, found, place.fits)) ?? (await longestOf(timeline, found));
  }
  if (number === null || number === undefined) return timeline.picked.replaceChildren("This row has no event in the timeline.");
  if (place.fits || !hits.length) hits = place.events ?? [number];
  timeline.hits = new Hits(timeline, hits, hits.indexOf(number));
  bringIntoView(timeline.node);
  await timeline.inspector.select(number, { reveal: true });
  timeline.canvas.focus({ preventScroll: true });
  timeline.node.dataset.jumped = number;
}

/** A time span or, if the page has no tiles, the longest call with the name. @param {Place} place */
function jumpToTime({ from, to, name }) {
  const timeline = shownTimeline(),
    { names, found } = timeline.data,
    one = from === undefined ? found.find((row) => names[row.name] === name) : null;
  if (one) [from, to] = [one.ts, one.ts + one.dur];
  if (from === undefined || to === undefined) return;
  bringIntoView(timeline.node);
  const room = Math.max((to - from) * 0.15, 20);
  timeline.show(from - room, to + room);
  timeline.inspector?.clear();
  timeline.span?.set(from, to);
  timeline.canvas.focus({ preventScroll: true });
  timeline.node.dataset.jumped = `${from} ${to}`;
}

/** Go back to the row or card that led to the timeline. */
export function goBack() {
  const { cameFrom } = page;
  if (!cameFrom?.isConnected) return;
  cameFrom.scrollIntoView({ behavior: "instant", block: "center" });
  cameFrom.focus({ preventScroll: true });
}

/**
 * A place for a row that has no place: the call or kernel that the row names.
 * @param {TableColumn[]} columns
 * @param {Row} row
 * @returns {Place | null}
 */
export function namedPlace(columns, row) {
  const known = page.timeline?.names;
  if (!known) return null;
  const column = columns.find((column) => isText(column) && known.has(shortenedName(row[column.key])));
  return column ? { name: row[column.key] } : null;
}

/**
 * True if a text in the form of `place_text` (trace/stacks.py) names the line of a row: "train.py:17 (forward)", "forward (train.py:17)".
 * @param {string} text
 * @param {Row} row
 */
const isOfLine = (text, { place, file, function: name }) =>
  text === place ||
  text.startsWith(`${place} (`) ||
  text.endsWith(`(${place})`) ||
  (name === "<module>" && text === `module level (${file})`);

/** Functions that find the table row of a fact, by kind of fact. @type {Record<string, [string, (value: any) => (row: Row) => boolean]>} */
const ROWS_OF_FACTS = {
  kernel: ["kernels", (name) => (row) => (row.members ?? [row.kernel]).includes(name)],
  call: ["operators", (name) => (row) => row.op === name],
  operator: ["operators", (name) => (row) => row.op === name],
  source: ["sources", (text) => (row) => isOfLine(text, row)],
  modules: ["modules", (names) => (row) => row.path === classesOf(names)],
  module: ["modules", (path) => (row) => row.path === classesOf(path.split(" / "))],
  phase: ["phases", (name) => (row) => row.phase === name],
};

/**
 * A button that leads from a fact to its row in a table; null if no table has the row.
 * @param {string} key
 * @param {any} value
 * @param {string | null} text
 */
export function rowButton(key, value, text = null) {
  const [name, finderOf] = ROWS_OF_FACTS[key] ?? [],
    rows = name ? shownTables.get(name) : undefined,
    wanted = finderOf?.(value);
  if (!rows || !wanted || !rows.has(wanted)) return null;
  const shown = text ?? (Array.isArray(value) ? value.join(" / ") : String(value)),
    title = `Go to its row in the table of ${name}`;
  return el("button", { type: "button", class: text ? null : "to-row", title, "data-row": key, onclick: () => rows.find(wanted) }, shown);
}
