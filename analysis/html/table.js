/* Tables: sorted by a click on a heading, filtered by a text, one unit a column; long ones show more on request. */

const ROWS_SHOWN = 100;

/**
 * columns: {key, title, unit, hint, code, like}; unit "text" for names, "share" for fractions of 1, else see SCALES;
 * `like` names a column whose unit this one takes, too.
 */
function table(columns, rows, { sort = null, filter = true, name = "", click = null } = {}) {
  columns = columns.filter((column) =>
    rows.some((row) => row[column.key] !== null && row[column.key] !== undefined && row[column.key] !== ""),
  );
  const state = { key: sort ?? columns.find((column) => column.unit !== "text")?.key, text: "", most: ROWS_SHOWN };
  state.down = columns.find((column) => column.key === state.key)?.unit !== "text";
  const units = Object.fromEntries(columns.map((column) => [column.key, columnUnit(column, rows)]));
  const head = el("tr"),
    body = el("tbody"),
    said = el("span", { class: "said" });
  const input = el("input", { type: "search", placeholder: "Filter rows…", "aria-label": `Filter ${name}` });
  const more = el("button", { type: "button" }, "Show all");
  input.addEventListener("input", () => {
    state.text = input.value.toLowerCase();
    draw();
  });
  more.addEventListener("click", () => {
    state.most = Infinity;
    draw();
  });
  for (const column of columns) {
    const [unit] = units[column.key];
    const heading = el(
      "th",
      { class: column.unit === "text" ? "text" : null, title: column.hint, scope: "col", tabindex: 0 },
      column.title,
      unit ? el("small", {}, unit) : null,
    );
    const turn = () => {
      state.down = state.key === column.key ? !state.down : column.unit !== "text";
      state.key = column.key;
      draw();
    };
    heading.addEventListener("click", turn);
    heading.addEventListener("keydown", (event) => {
      if (event.key === "Enter") turn();
    });
    column.heading = heading;
    head.append(heading);
  }

  function draw() {
    const texts = columns.filter((column) => column.unit === "text");
    const found = state.text
      ? rows.filter((row) =>
          texts.some((column) =>
            String(row[column.key] ?? "")
              .toLowerCase()
              .includes(state.text),
          ),
        )
      : rows.slice();
    found.sort((a, b) => compare(a[state.key], b[state.key]) * (state.down ? -1 : 1));
    for (const column of columns) {
      if (column.key === state.key) column.heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else column.heading.removeAttribute("aria-sort");
    }
    body.replaceChildren(
      ...found.slice(0, state.most).map((row) =>
        el(
          "tr",
          click ? { class: "go", onclick: () => click(row) } : {},
          columns.map((column) => cell(column, row, units[column.key])),
        ),
      ),
    );
    more.hidden = found.length <= state.most;
    said.textContent =
      found.length < rows.length
        ? `${integers.format(found.length)} of ${integers.format(rows.length)} rows`
        : more.hidden
          ? ""
          : `first ${ROWS_SHOWN} of ${integers.format(rows.length)} rows`;
  }

  draw();
  const tools = filter && rows.length > 8 ? el("div", { class: "tools" }, input, said, more) : null;
  return el(
    "div",
    {},
    tools,
    el("div", { class: "table" }, el("table", { "data-table": name }, el("thead", {}, head), body)),
  );
}

/** Name and factor of the unit in which a column, or the one it is to look like, reads best: not too large for most. */
function columnUnit(column, rows) {
  if (!SCALES[column.unit])
    return [column.unit === "share" ? "%" : ["text", "count", undefined].includes(column.unit) ? "" : column.unit, 1];
  const sizes = rows.map((row) => Math.abs(row[column.like ?? column.key] ?? 0)).filter((size) => size > 0);
  sizes.sort((a, b) => a - b);
  return unitFor(column.unit, sizes.length ? Math.sqrt(sizes[sizes.length >> 1] * sizes[sizes.length - 1]) : 0);
}

function cell(column, row, [, factor]) {
  const value = row[column.key];
  if (value === null || value === undefined)
    return el("td", { class: column.unit === "text" ? "text nothing" : "nothing" }, "–");
  if (column.unit === "text") {
    return el("td", { class: "text", title: value }, column.code ? el("code", {}, bare(String(value))) : String(value));
  }
  if (column.unit === "share")
    return el("td", { class: "share", "--share": `${Math.min(100, 100 * value)}%` }, percent(value));
  if (column.unit === "count") return el("td", {}, integers.format(value));
  if (!(column.unit in SCALES) || factor === 1) return el("td", {}, plain(value));
  return el(
    "td",
    {},
    value !== 0 && Math.abs(value / factor) < 0.005 ? show(value, column.unit) : fixed(value / factor),
  );
}

/** Three significant digits below 1000, but never more than three places: columns that line up. */
function fixed(value) {
  const size = Math.abs(value);
  return size >= 1000 ? integers.format(value) : value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}
