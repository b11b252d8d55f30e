/* Sections, cards and tiles. */

import { el, small } from "./dom.js";
import { numberOf } from "./units.js";

/** @param {string | null} heading @param {string | null | undefined} note @param {Content[]} content */
export function card(heading, note, ...content) {
  const head = heading ? el("h3", {}, heading, small(note)) : null;
  return el("div", { class: "card" }, head, content);
}

/**
 * Cards next to each other; spans are twelfths of the width, and a single card fills the width.
 * @param {number[]} spans
 * @param {(HTMLElement | null)[]} cards
 */
export function sideBySide(spans, ...cards) {
  const shown = cards.filter((node) => node !== null);
  shown.forEach((node, i) => node.style.setProperty("--span", shown.length > 1 ? String(spans[i]) : "12"));
  return el("div", { class: "columns" }, shown);
}

/** @param {string} id @param {string} heading @param {string | null} lead @param {Content[]} content */
export function section(id, heading, lead, ...content) {
  return el(
    "section",
    { id, "aria-labelledby": `${id}-heading` },
    el("h2", { id: `${id}-heading` }, heading),
    lead ? el("p", { class: "lead" }, lead) : null,
    content,
  );
}

/** @param {string} label @param {string} value @param {string | null} [note] */
export function tile(label, value, note) {
  const [number, ...unit] = value.split(" ");
  return el(
    "div",
    { class: "tile" },
    el("div", { class: "label" }, label),
    el("div", { class: "value" }, number, small(unit.join(" "))),
    el("div", { class: "note" }, note ?? ""),
  );
}

/** @param {Rank} rank @param {string} name */
export function leftOut(rank, name) {
  const rows = rank.left_out[name];
  return rows ? `${numberOf(rows, "more row")} not shown` : null;
}

/** The kinds that occur in some rows, in the order of `kinds`. @param {{kind?: number}[]} rows @param {Kind[]} kinds */
export function kindsOf(rows, kinds) {
  return kinds.filter((_, kind) => rows.some((row) => row.kind === kind));
}
