/* Tables: sorted by a click on a heading, filtered by a text, one unit a column. */

import { csvOf } from "./csv.js";
import { copied, el, small, stepped } from "./dom.js";
import { card } from "./layout.js";
import { bare, fits } from "./names.js";
import { column } from "./packed.js";
import { drawnOnPaper, page, shownTables } from "./state.js";
import { Theme } from "./theme.js";
import { jumpTo, namedPlace } from "./timeline/jump.js";
import { columnUnit, fixed, integers, percent, plain, SCALES, show } from "./units.js";

const ROWS_SHOWN = 100;

/** Columns of a table by what is in them: key of the rows' values, heading, and `more` of what `table` knows. */
const columnOf = (unit, code) => (key, title, more) => ({ key, title, unit, code, ...more });

export const col = {
  text: columnOf("text"),
  code: columnOf("text", true),
  count: columnOf("count"),
  share: columnOf("share"),
  ns: columnOf("ns"),
  bytes: columnOf("bytes"),
  bandwidth: columnOf("bytes/s"),
  rate: columnOf("flop/s"),
  other: (key, title, unit) => ({ key, title, unit }),
};

/**
 * A card with a table; null without rows.
 * @param {string | null} heading
 * @param {string | null | undefined} note
 * @param {(TableColumn | null)[]} columns
 * @param {Row[]} rows
 * @param {TableOptions} [options]
 */
export function tableCard(heading, note, columns, rows, options) {
  return rows.length ? card(heading, note, table(columns, rows, options)) : null;
}

/**
 * columns: {key, title, unit, hint, code, front, like, indent}, or null; unit "text" for names, "share" for fractions of
 * 1, else see SCALES; texts of `front` are cut at their beginning; `like` names a column whose unit this one takes, too;
 * `indent` one that says how far a name is moved in. `jump`: the place of a row in the timeline (see jump.js), by default
 * the longest call or kernel that the row names; `click`: what a click on a row does instead. The arrow keys go from row
 * to row, Enter does what a click does.
 * @param {(TableColumn | null)[]} columns
 * @param {Row[]} rows
 * @param {TableOptions} [options]
 */
export function table(columns, rows, { sort = null, filter = true, name = "", jump = null, click = null } = {}) {
  columns = columns
    .filter((column) => column && rows.some((row) => (row[column.key] ?? "") !== ""))
    .map((column) => ({ ...column }));
  jump ??= (row) => namedPlace(columns, row);
  const first = sort === "" ? null : (sort ?? columns.find((column) => column.unit !== "text")?.key);
  const state = { key: first, text: "", most: ROWS_SHOWN, at: -1, found: rows };
  state.down = columns.find((column) => column.key === state.key)?.unit !== "text";
  const units = Object.fromEntries(columns.map((column) => [column.key, columnUnit(column, rows)]));
  const head = el("tr"),
    body = el("tbody"),
    said = el("span", { class: "said", role: "status" }),
    shown = el("table", { "data-table": name, "aria-label": name.replaceAll("_", " ") }, el("thead", {}, head), body);
  const input = el("input", { type: "search", placeholder: "Filter rows…", "aria-label": `Filter ${name}` });
  const more = el("button", { type: "button" }, "Show all"),
    title = "The rows shown, with full names and whole numbers",
    copy = el("button", { type: "button", class: "push", title }, "Copy as CSV");
  input.addEventListener("input", () => {
    state.text = input.value.toLowerCase();
    state.at = -1;
    draw();
  });
  input.addEventListener("keydown", (event) => stepped(event, state.at, state.found.length, go));
  more.addEventListener("click", () => {
    state.most = Infinity;
    draw();
  });
  copy.addEventListener("click", async () => {
    const count = integers.format(state.found.length);
    said.textContent = (await copied(csvOf(columns, state.found))) ? `${count} rows copied` : "copying is not allowed";
  });
  for (const column of columns) {
    const [unit] = units[column.key];
    const turn = () => {
      state.down = state.key === column.key ? !state.down : column.unit !== "text";
      state.key = column.key;
      state.at = -1;
      draw();
    };
    column.heading = el(
      "th",
      { class: column.unit === "text" ? "text" : null, scope: "col" },
      el("button", { type: "button", title: column.hint, onclick: turn }, column.title, small(unit)),
    );
    head.append(column.heading);
  }

  /** Mark a row of those found and show it. */
  function go(at, { focus = false } = {}) {
    state.at = at;
    if (state.at >= state.most) state.most = Infinity;
    draw();
    const row = body.children[state.at];
    row.scrollIntoView({ block: "nearest" });
    if (focus) row.focus({ preventScroll: true });
    said.textContent = `row ${integers.format(state.at + 1)} of ${integers.format(state.found.length)}`;
  }

  /** Show the first row that fits, of all rows. */
  function find(wanted) {
    if (!rows.some(wanted)) return false;
    input.value = state.text = "";
    draw();
    shown.scrollIntoView({ behavior: "instant", block: "center" });
    go(state.found.findIndex(wanted), { focus: true });
    body.children[state.at].scrollIntoView({ behavior: "instant", block: "center" });
    return true;
  }

  function act(at) {
    const row = state.found[at],
      place = click ? null : page.timeline && jump(row);
    if (click) click(row);
    else if (place) jumpTo(place, body.children[at]);
  }

  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && getSelection().isCollapsed) act(row.sectionRowIndex);
  });
  body.addEventListener("keydown", (event) => {
    const at = event.target.sectionRowIndex;
    if (at === undefined) return;
    if (event.key === "Enter") return act(at);
    const count = Math.min(state.found.length, state.most),
      to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to >= 0 && to < count) go(to, { focus: true });
  });

  function draw() {
    const texts = columns.filter((column) => column.unit === "text");
    state.found = state.text
      ? rows.filter((row) => texts.some((column) => fits(row[column.key], state.text)))
      : rows.slice();
    if (state.key) state.found.sort((a, b) => compare(a[state.key], b[state.key]) * (state.down ? -1 : 1));
    for (const column of columns) {
      if (column.key === state.key) column.heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else column.heading.removeAttribute("aria-sort");
    }
    const most = Theme.paper ? Infinity : state.most;
    body.replaceChildren(
      ...state.found.slice(0, most).map((row, at) => {
        const goes = click || (page.timeline && jump(row)),
          attributes = {
            "aria-current": at === state.at ? "true" : null,
            class: goes ? "go" : null,
            tabindex: at === Math.max(0, state.at) ? 0 : -1, // one of them; the arrow keys lead to the others
          };
        return el("tr", attributes, columns.map((column) => cell(column, row, units[column.key])));
      }),
    );
    more.hidden = state.found.length <= most;
    said.textContent =
      state.found.length < rows.length
        ? `${integers.format(state.found.length)} of ${integers.format(rows.length)} rows`
        : more.hidden
          ? ""
          : `first ${ROWS_SHOWN} of ${integers.format(rows.length)} rows`;
  }

  if (name && !name.startsWith("span-")) {
    shownTables.set(name, { find, has: (wanted) => rows.some(wanted) });
    if (rows.length > ROWS_SHOWN) drawnOnPaper.add(draw);
  }
  draw();
  const searched = filter && rows.length > 8;
  return el(
    "div",
    {},
    el("div", { class: searched ? "tools" : "tools alone" }, searched ? [input, said, more] : said, copy),
    el(
      "div",
      { class: "table", tabindex: 0, role: "region", "aria-label": `${name.replaceAll("_", " ")} table` },
      shown,
    ),
  );
}

/** @param {TableColumn} column @param {Row} row @param {[string, number]} unit */
export function cell(column, row, [, factor]) {
  const value = row[column.key];
  if (value === null || value === undefined)
    return el("td", { class: column.unit === "text" ? "text nothing" : "nothing" }, "–");
  if (column.unit === "text") {
    const text = column.code ? el("code", {}, bare(String(value))) : String(value);
    const indent = column.indent ? `${row[column.indent] * 14}px` : null;
    const whole = column.front ? el("bdi", { dir: "ltr" }, text) : text;
    return el("td", { class: column.front ? "text front" : "text", title: value, "--indent": indent }, whole);
  }
  if (column.unit === "share")
    return el("td", { class: "share", "--share": `${Math.min(100, 100 * value)}%` }, percent(value));
  if (column.unit === "count" || value === 0) return el("td", {}, integers.format(value));
  if (!(column.unit in SCALES) || factor === 1) return el("td", {}, plain(value));
  return el("td", {}, Math.abs(value / factor) < 0.005 ? show(value, column.unit) : fixed(value / factor));
}

/** @param {any} a @param {any} b */
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}
