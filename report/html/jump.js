/* From a row of a table or a finding to its place in the timeline, and from an event back to the rows that it is in. */

const MOST_CHECKED = 400; // events whose details are compared one by one

/**
 * A place in the timeline, of which the longest event is shown:
 * - `event`: the number of one; or `from` and `to`, ns: a span of time;
 * - `gpu` (events of devices or calls of the host), `device`, `stream`: its lane;
 * - `name`: its full name, or `codes`, names by their place in the page's list; `op`: the topmost operator that
 *   launched it;
 * - `has`: what its columns of `Details` say, (columns, at, texts, name) => boolean;
 * - `fits`: what all that is known of it says, async (event, texts) => boolean, asked of the longest ones;
 * - `gap`: the longest time between events of its lane instead;
 * - `orElse`: another place, where there is no such event.
 */

/** Events of a place in order of time, [{number, ts, dur}]; of the step that the page is of, if any. */
async function eventsOf(timeline, { gpu, device, stream, name, codes, op, has }) {
  const { tiles, inspector, step, data } = timeline,
    texts = await inspector.details.texts(),
    wanted = codes ?? (name === undefined ? null : codesOf(texts.names, name)),
    launched = op ? codesOf(texts.names, op) : null,
    found = [];
  for (let tile = 0; tile < tiles.first.length; tile++) {
    const lane = data.lanes[tiles.tiles.lane[tile]];
    if (gpu !== undefined && lane.gpu !== gpu) continue;
    if (stream !== undefined && lane.stream !== stream) continue;
    if (device !== undefined && lane.device !== device) continue;
    const columns = tiles.decoded.get(tile) ?? (await tiles.decode(tile)),
      details = has || step ? (await inspector.details.tile(tile)).columns : null;
    for (let i = 0; i < columns.count; i++) {
      if (wanted && !wanted.has(columns.name[i])) continue;
      if (launched && !launched.has(columns.op[i])) continue;
      if (step && details.step[i] !== step.number) continue;
      if (has && !has(details, i, texts, columns.name[i])) continue;
      found.push({ number: columns.first + i, ts: columns.ts[i], dur: columns.dur[i] });
    }
  }
  return found.sort((a, b) => a.ts - b.ts || a.number - b.number);
}

const codesOf = (names, name) => new Set(names.flatMap((one, i) => (one === name ? [i] : [])));

/** Number of the longest of some events; with `fits` of those that do. */
async function longestOf(timeline, found, fits) {
  const ordered = found.slice().sort((a, b) => b.dur - a.dur || a.ts - b.ts);
  if (!fits) return ordered[0]?.number ?? null;
  const { details } = timeline.inspector,
    texts = await details.texts();
  for (const { number } of ordered.slice(0, MOST_CHECKED))
    if (await fits(await details.of(number), texts)) return number;
  return null;
}

/** The longest gap of some events, {from, to}. */
function longestGap(found) {
  let best = null,
    reach = found[0]?.ts;
  for (const { ts, dur } of found) {
    if (ts - reach > (best ? best.to - best.from : 0)) best = { from: reach, to: ts };
    reach = Math.max(reach, ts + dur);
  }
  return best;
}

let cameFrom = null; // the row or card that led to the timeline

/** Show a place in the timeline; the element that led there is what `goBack` returns to. */
async function jumpTo(place, from = null) {
  if (!timeline) return;
  cameFrom = from;
  if (place.from !== undefined || !timeline.inspector) return jumpToTime(place);
  let hits = [],
    number = place.event;
  if (number === undefined) {
    let found = await eventsOf(timeline, place);
    if (!found.length && place.orElse?.from !== undefined) return jumpToTime(place.orElse);
    if (!found.length && place.orElse) found = await eventsOf(timeline, place.orElse);
    const gap = place.gap ? longestGap(found) : null;
    if (gap) return jumpToTime(gap);
    hits = found.map((one) => one.number);
    number = (await longestOf(timeline, found, place.fits)) ?? (await longestOf(timeline, found));
  }
  if (number === null) return timeline.picked.replaceChildren("Not in the timeline: what this row is of has no event there.");
  if (place.fits || !hits.length) hits = place.events ?? [number];
  timeline.hits = new Hits(timeline, hits, hits.indexOf(number));
  bringIntoView(timeline.node);
  await timeline.inspector.select(number, { reveal: true });
  timeline.canvas.focus({ preventScroll: true });
  timeline.node.dataset.jumped = number;
}

/** A span of time, or without tiles the longest call of a name. */
function jumpToTime({ from, to, name }) {
  const { names, found } = timeline.data,
    one = from === undefined ? found.find((row) => names[row.name] === name) : null;
  if (one) [from, to] = [one.ts, one.ts + one.dur];
  if (from === undefined) return;
  bringIntoView(timeline.node);
  const room = Math.max((to - from) * 0.15, 20);
  timeline.show(from - room, to + room);
  timeline.inspector?.clear();
  timeline.span?.set(from, to);
  timeline.canvas.focus({ preventScroll: true });
  timeline.node.dataset.jumped = `${from} ${to}`;
}

function bringIntoView(node) {
  const { top, bottom } = node.getBoundingClientRect();
  if (top < 60 || bottom > innerHeight) node.scrollIntoView({ behavior: "instant", block: "start" });
}

/** To the row or card that led here. */
function goBack() {
  if (!cameFrom?.isConnected) return;
  cameFrom.scrollIntoView({ behavior: "instant", block: "center" });
  cameFrom.focus({ preventScroll: true });
}

const shownTables = new Map(); // name to its `Rows`

/** Show the first row of a table that fits, as it is sorted, and what led there; whether there is one. */
function showRow(name, wanted) {
  return shownTables.get(name)?.find(wanted) ?? false;
}

/** The place of a row without one of its own: the call or kernel that one of its texts names. */
function namedPlace(columns, row) {
  const known = timeline?.names;
  if (!known) return null;
  const column = columns.find(({ key, unit }) => unit === "text" && known.has(shortenedName(row[key])));
  return column ? { name: row[column.key] } : null;
}

/** A name as the timeline has it. */
const shortenedName = (name) => {
  const text = String(name ?? "");
  return text.length > LONGEST_NAME ? `${text.slice(0, LONGEST_NAME - 1)}…` : text;
};

/* What rows are of. */

/** Class of a module: its name without number, and without how many there are. */
const moduleClass = (name) => name.replace(/^nn\.Module: /, "").replace(/(?:_\d+| × \d+)$/, "");
const classesOf = (names) => names.map(moduleClass).join(" / ");

/** "file:line" of the innermost line of own code that an event is of. */
function lineOf(texts, entry) {
  const { stacks } = texts;
  return (entry >= 0 && stacks?.lines[stacks.line[entry]]?.replace(/ \(.*\)$/s, "")) || "";
}

/** Label of the shapes of a signature: "[8,4],[4,2]". */
const shapesLabel = (signature) => signature?.shapes.map((shape) => `[${shape.join(",")}]`).join(",") ?? "";

/** The call that launched a device event, itself if it is a call. */
async function callOf(event) {
  const number = event.gpu ? Details.first(event.sources, "operator") : event.number;
  return number === null ? null : timeline.inspector.details.of(number);
}

/** The topmost operator around a call. */
async function topOf(call) {
  const { data, inspector } = timeline;
  let top = call;
  for (let at = call; at; ) {
    const caller = Details.first(at.sources, "caller");
    at = caller === null ? null : await inspector.details.of(caller);
    if (at && data.kinds[at.kind].name === "Operator") top = at;
  }
  return top;
}

const ofLine = (line, gpu) => ({ gpu, has: (columns, i, texts) => lineOf(texts, columns.entry[i]) === line });

/** Of a fact of an event what finds its row in a table: [table, (value) => (row) => boolean]. */
const ROWS_OF_FACTS = {
  kernel: ["kernels", (name) => (row) => row.kernel === name],
  call: ["operators", (name) => (row) => row.op === name],
  operator: ["operators", (name) => (row) => row.op === name],
  source: ["sources", (line) => (row) => line.startsWith(`${row.place} `) || line === row.place],
  modules: ["modules", (names) => (row) => row.path === classesOf(names)],
  module: ["modules", (path) => (row) => row.path === classesOf(path.split(" / "))],
  phase: ["phases", (name) => (row) => row.phase === name],
};

/** A button that leads from a fact to its row in a table; null where no table has one. */
function rowButton(key, value, text = null) {
  const [name, of] = ROWS_OF_FACTS[key] ?? [],
    rows = name && shownTables.get(name),
    wanted = rows && of(value);
  if (!rows?.has(wanted)) return null;
  const shown = text ?? (Array.isArray(value) ? value.join(" / ") : String(value)),
    title = `Its row in the table of ${name}`;
  return el("button", { type: "button", class: text ? null : "to-row", title, "data-row": key, onclick: () => rows.find(wanted) }, shown);
}
