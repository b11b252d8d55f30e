/* Numbers with their units, as text. */


/** @param {string} unit @param {string[]} prefixes @returns {[string, number][]} */
const metric = (unit, prefixes) => prefixes.map((prefix, i) => [prefix + unit, 1000 ** i]);

/** Names and factors of units, the smallest first. @type {Record<string, [string, number][]>} */
export const SCALES = {
  ns: [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]],
  bytes: metric("B", ["", "k", "M", "G", "T"]),
  flop: metric("FLOP", ["", "k", "M", "G", "T", "P"]),
  "flop/s": metric("FLOP/s", ["", "k", "M", "G", "T", "P"]),
  "bytes/s": metric("B/s", ["", "k", "M", "G", "T"]),
};

/**
 * The unit in which a value of this size reads best: [name, factor].
 * @param {string} unit
 * @param {number} largest
 * @returns {[string, number]}
 */
export function unitFor(unit, largest) {
  const scale = SCALES[unit];
  let best = scale[0];
  for (const step of scale) if (Math.abs(largest) >= step[1]) best = step;
  return best;
}

export const integers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** @param {number} value */
export function plain(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return integers.format(value);
  if (size < 0.001) return value.toExponential(1);
  const places = Math.max(0, 2 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(places, 6));
}

/** @param {number} share */
export function percent(share) {
  const value = 100 * share;
  return value === 0 || value === 100 ? String(value) : value < 0.1 && value > 0 ? "< 0.1" : value.toFixed(1);
}

/**
 * A number with its unit, as text: "12.3 µs", "45.6 %", "1,234".
 * @param {number | null | undefined} value
 * @param {string} unit
 */
export function show(value, unit) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (unit === "share") return `${percent(value)} %`;
  if (unit === "count") return integers.format(value);
  if (!SCALES[unit]) return unit ? `${plain(value)} ${unit}` : plain(value);
  const [name, factor] = unitFor(unit, value);
  return `${plain(value / factor)} ${name}`;
}

/** A number on an axis, shown without trailing zeros. @param {number} value @param {string} unit */
export function neat(value, unit) {
  return show(value, unit)
    .replace(/(\.\d*?)0+(?= |$)/, "$1")
    .replace(/\.(?= |$)/, "");
}

/**
 * Round to three significant digits below 1000, with at most three decimals, so that columns align.
 * @param {number} value
 */
export function fixed(value) {
  const size = Math.abs(value);
  return size >= 1000 ? integers.format(value) : value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

/** @param {{unit: string}} column */
export const isText = ({ unit }) => unit === "text" || unit === "name";

/** Units without scale, as column headings show them. @type {Record<string, string>} */
const HEADINGS = { share: "%", "flop/byte": "FLOP/byte", "×": "×" };

/**
 * A number in a column. The heading of the column shows the unit.
 * @param {number | boolean} value
 * @param {string} unit
 * @param {number} factor
 */
export function inColumn(value, unit, factor) {
  if (typeof value === "boolean") return value ? "yes" : "";
  if (unit === "share") return percent(value);
  if (unit === "count" || unit === "tokens" || value === 0) return integers.format(value);
  if (unit === "number" && Number.isInteger(value)) return integers.format(value);
  if (!SCALES[unit] || factor === 1) return plain(value);
  return Math.abs(value / factor) < 0.005 ? show(value, unit) : fixed(value / factor);
}

/**
 * Name and factor of the best unit for a column (or for the column that it imitates): not too large for most rows.
 * @param {TableColumn} column
 * @param {Row[]} rows
 * @returns {[string, number]}
 */
export function columnUnit(column, rows) {
  if (!SCALES[column.unit]) return [HEADINGS[column.unit] ?? "", 1];
  const sizes = rows.map((row) => Math.abs(row[column.like ?? column.key] ?? 0)).filter((size) => size > 0);
  sizes.sort((a, b) => a - b);
  return unitFor(column.unit, sizes.length ? Math.sqrt(sizes[sizes.length >> 1] * sizes[sizes.length - 1]) : 0);
}

/** A number of evidence with its unit. @param {number} value @param {string} unit */
export function amountText(value, unit) {
  const known = unit === "FLOP/s" ? "flop/s" : unit;
  return Number.isInteger(value) && !SCALES[known] && known !== "share" ? `${integers.format(value)} ${unit}` : show(value, known);
}

/** "1 call", "1,234 calls". @param {number} count @param {string} noun */
export const numberOf = (count, noun) => `${integers.format(count)} ${noun}${count === 1 ? "" : "s"}`;

/** @param {number} ns */
export const exactMs = (ns) => `${(ns / 1e6).toFixed(6)} ms`;

/** @param {number} value */
export function power(value) {
  const digits = Math.round(Math.log10(value));
  return digits >= 4 || digits <= -3
    ? `10${[...String(digits)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)])).join("")}`
    : String(value);
}

/** @param {number} share */
export const signed = (share) => `${share < 0 ? "−" : "+"}${(100 * Math.abs(share)).toFixed(2)} %`;
