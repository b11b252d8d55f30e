/* Tables: a click on a heading sorts them, a text filters them, and each column has one unit. */

import { columnsOf } from "./columns.js";
import { csvOf } from "./csv.js";
import { copied, el, small, stepped } from "./dom.js";
import { card } from "./layout.js";
import { bare, fits } from "./names.js";
import { drawnOnPaper, page, shownTables } from "./state.js";
import { Theme } from "./theme.js";
import { jumpTo, namedPlace } from "./timeline/jump.js";
import { columnUnit, inColumn, integers, isText } from "./units.js";

const ROWS_SHOWN = 100;
const FILTERED_ROWS = 8; // longer tables have a filter

/**
 * A card with a table, or null if there are no rows.
 * @param {string | null} heading
 * @param {string | null | undefined} note
 * @param {string} name
 * @param {Row[]} rows
 * @param {TableOptions} [options]
 */
export function tableCard(heading, note, name, rows, options) {
  return rows.length ? card(heading, note, table(name, rows, options)) : null;
}

/**
 * A table with its filter. The first word of `name` selects the columns from the data of the page; empty columns are
 * hidden.
 * @param {string} name
 * @param {Row[]} rows
 * @param {TableOptions} [options]
 */
export const table = (name, rows, options) => new Table(name, rows, options).node;

/**
 * Return whether to show a column: some row must have a value, and in a column with `several`, the values must differ.
 * @param {TableColumn} column
 * @param {Row[]} rows
 */
export function saysSomething({ key, unit, several }, rows) {
  if (several) return new Set(rows.map((row) => row[key])).size > 1;
  return rows.some((row) => row[key] || (unit === "number" && row[key] === 0));
}

/** A click or Enter on a row leads to the place of the row in the timeline; arrow keys move between rows. */
class Table {
  /** @param {string} name @param {Row[]} rows @param {TableOptions} [options] */
  constructor(name, rows, { columns, sort = null, filter = true, jump = null, click = null } = {}) {
    this.rows = rows;
    this.name = name;
    this.click = click;
    this.columns = (columns ?? columnsOf(name)).filter((column) => saysSomething(column, rows));
    this.jump = jump ?? ((/** @type {Row} */ row) => namedPlace(this.columns, row));
    this.units = Object.fromEntries(this.columns.map((column) => [column.key, columnUnit(column, rows)]));
    /** Key of the column that sorts the rows, "" for the given order. */
    this.sortKey = sort ?? this.columns.find((column) => !isText(column))?.key ?? "";
    this.isDescending = !this.columns.some((column) => column.key === this.sortKey && isText(column));
    this.text = ""; // text of the filter
    this.most = ROWS_SHOWN;
    this.at = -1; // index of the marked row among the found rows
    this.found = rows;
    this.build(filter && rows.length > FILTERED_ROWS);
    if (name && !name.startsWith("span-")) {
      shownTables.set(name, { find: (wanted) => this.find(wanted), has: (wanted) => rows.some(wanted) });
      if (rows.length > ROWS_SHOWN) drawnOnPaper.add(() => this.draw());
    }
    this.draw();
  }

  /** @param {boolean} searched */
  build(searched) {
    const label = this.name.replaceAll("_", " ");
    this.headings = this.columns.map((column) => this.heading(column));
    this.body = el("tbody");
    this.said = el("span", { class: "said", role: "status" });
    this.more = el("button", { type: "button", onclick: () => this.showAll() }, "Show all");
    this.input = el("input", {
      type: "search",
      placeholder: "Filter rows…",
      "aria-label": `Filter ${this.name}`,
      oninput: () => this.filter(this.input.value),
      onkeydown: (/** @type {KeyboardEvent} */ event) => stepped(event, this.at, this.found.length, (at) => this.go(at)),
    });
    const title = "Copy the rows shown, with full names and exact numbers",
      copy = el("button", { type: "button", class: "push", title, onclick: () => this.copy() }, "Copy as CSV");
    this.shown = el("table", { "data-table": this.name, "aria-label": label }, el("thead", {}, el("tr", {}, this.headings)), this.body);
    this.body.addEventListener("click", (/** @type {any} */ event) => {
      const row = event.target.closest("tr");
      if (row && getSelection()?.isCollapsed) this.act(row.sectionRowIndex);
    });
    this.body.addEventListener("keydown", (/** @type {any} */ event) => this.key(event));
    this.node = el(
      "div",
      {},
      el("div", { class: searched ? "tools" : "tools alone" }, searched ? [this.input, this.said, this.more] : this.said, copy),
      el("div", { class: "table", tabindex: 0, role: "region", "aria-label": `${label} table` }, this.shown),
    );
  }

  /** @param {TableColumn} column */
  heading(column) {
    const sort = () => {
      this.isDescending = this.sortKey === column.key ? !this.isDescending : !isText(column);
      this.sortKey = column.key;
      this.at = -1;
      this.draw();
    };
    const [unit] = this.units[column.key];
    return el(
      "th",
      { class: isText(column) ? "text" : null, scope: "col" },
      el("button", { type: "button", title: column.hint, onclick: sort }, column.title.replace(/^[a-z]/, (first) => first.toUpperCase()), small(unit)),
    );
  }

  draw() {
    const { columns, rows, sortKey, text } = this,
      texts = columns.filter(isText),
      most = Theme.paper ? Infinity : this.most;
    this.found = text ? rows.filter((row) => texts.some(({ key }) => fits(row[key], text))) : rows.slice();
    if (sortKey) this.found.sort((a, b) => compare(a[sortKey], b[sortKey]) * (this.isDescending ? -1 : 1));
    columns.forEach(({ key }, at) => {
      if (key === sortKey) this.headings?.[at].setAttribute("aria-sort", this.isDescending ? "descending" : "ascending");
      else this.headings?.[at].removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...this.found.slice(0, most).map((row, at) => this.row(row, at)));
    this.more.hidden = this.found.length <= most;
    this.said.textContent =
      this.found.length < rows.length
        ? `${integers.format(this.found.length)} of ${integers.format(rows.length)} rows`
        : this.more.hidden
          ? ""
          : `first ${ROWS_SHOWN} of ${integers.format(rows.length)} rows`;
  }

  /** @param {Row} row @param {number} at */
  row(row, at) {
    const attributes = {
      "aria-current": at === this.at ? "true" : null,
      class: this.click || (page.timeline && this.jump(row)) ? "go" : null,
      tabindex: at === Math.max(0, this.at) ? 0 : -1, // a single tab stop; the arrow keys move between rows
    };
    return el("tr", attributes, this.columns.map((column) => cell(column, row, this.units[column.key])));
  }

  /** @param {string} text */
  filter(text) {
    this.text = text.toLowerCase();
    this.at = -1;
    this.draw();
  }

  showAll() {
    this.most = Infinity;
    this.draw();
  }

  async copy() {
    const count = integers.format(this.found.length);
    this.said.textContent = (await copied(csvOf(this.columns, this.found))) ? `${count} rows copied` : "copying is not allowed";
  }

  /** Mark and show one of the found rows. @param {number} at @param {{focus?: boolean}} [options] */
  go(at, { focus = false } = {}) {
    this.at = at;
    if (at >= this.most) this.most = Infinity;
    this.draw();
    const row = this.body.children[at];
    row.scrollIntoView({ block: "nearest" });
    if (focus) row.focus({ preventScroll: true });
    this.said.textContent = `row ${integers.format(at + 1)} of ${integers.format(this.found.length)}`;
  }

  /** Show the first row that `wanted` accepts. @param {(row: Row) => boolean} wanted */
  find(wanted) {
    if (!this.rows.some(wanted)) return false;
    this.input.value = this.text = "";
    this.draw();
    this.shown.scrollIntoView({ behavior: "instant", block: "center" });
    this.go(this.found.findIndex(wanted), { focus: true });
    this.body.children[this.at].scrollIntoView({ behavior: "instant", block: "center" });
    return true;
  }

  /** Open a row as a click does. @param {number} at */
  act(at) {
    const row = this.found[at];
    if (this.click) return this.click(row);
    const place = page.timeline && this.jump(row);
    if (place) jumpTo(place, this.body.children[at]);
  }

  /** @param {KeyboardEvent & {target: HTMLTableRowElement}} event */
  key(event) {
    const at = event.target.sectionRowIndex;
    if (at === undefined) return;
    if (event.key === "Enter") return this.act(at);
    const count = Math.min(this.found.length, this.most);
    /** @type {Record<string, number>} */
    const places = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: count - 1 };
    const to = places[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to >= 0 && to < count) this.go(to, { focus: true });
  }
}

/** @param {TableColumn} column @param {Row} row @param {[string, number]} unit */
function cell(column, row, [, factor]) {
  const value = row[column.key];
  if (value === null || value === undefined) return el("td", { class: isText(column) ? "text nothing" : "nothing" }, "–");
  if (isText(column)) {
    const text = column.unit === "name" ? el("code", {}, bare(String(value))) : String(value);
    const indent = column.indent ? `${(row[column.indent] ?? 0) * 14}px` : null;
    const whole = column.front ? el("bdi", { dir: "ltr" }, text) : text;
    return el("td", { class: column.front ? "text front" : "text", title: value, "--indent": indent }, whole);
  }
  const share = column.unit === "share" ? { class: "share", "--share": `${Math.min(100, 100 * value)}%` } : {};
  return el("td", share, inColumn(value, column.unit, factor));
}

/** @param {any} a @param {any} b */
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}
