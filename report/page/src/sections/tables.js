/* Tables that other packages add to an analysis. */

import { section } from "../layout.js";
import { tableCard } from "../table.js";

/** @type {Section} */
export function tablesSection(_, rank) {
  if (!rank.tables) return null;
  const cards = rank.tables.map(({ title, name, columns, rows }) => tableCard(title, "", name, rows, { columns, sort: "" }));
  return cards.some(Boolean) ? section("tables", "Further tables", null, ...cards) : null;
}
