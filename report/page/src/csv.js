/* Rows of a table as CSV: full names and whole numbers, times in ns. */


/**
 * The text of a cell. Like `csv_cell`, it puts an apostrophe before a text that a spreadsheet would read as a formula.
 * @param {string} text
 */
function csvCell(text) {
  const parts = text.split(/(?<=[;\t\r\n])/);
  const cell = parts.map((part) => (/^[\s\p{C}\p{Z}]*[=+\-@|＝＋－＠｜﹢﹣﹦﹫−]/u.test(part) ? `'${part}` : part)).join("");
  return /^[\t\r\n]/.test(cell) ? `'${cell}` : cell;
}

/**
 * Rows as CSV with full names, whole numbers and times in ns; see `csvCell` for texts that look like formulas.
 * @param {TableColumn[]} columns
 * @param {Row[]} rows
 */
export function csvOf(columns, rows) {
  const quoted = (/** @type {any} */ value) => {
    const text = typeof value === "string" ? csvCell(value) : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns.map((column) => column.key), ...rows.map((row) => columns.map((column) => row[column.key]))];
  return lines.map((line) => `${line.map(quoted).join(",")}\n`).join("");
}
