/* The critical path as a table. */

import { PATH_COLORS } from "../timeline/critical.js";
import { ofRows } from "../timeline/places.js";
import { card, section } from "../layout.js";
import { stack } from "../stack.js";
import { tableCard } from "../table.js";
import { show } from "../units.js";

/** @type {Section} */
export function pathSection(report, rank) {
  const rows = rank.path_rows;
  if (!rows?.length || typeof rows === "string") return null;
  const total = rows.reduce((sum, row) => sum + row.ns, 0),
    kinds = new Map();
  for (const { kind, ns } of rows) kinds.set(kind, (kinds.get(kind) ?? 0) + ns);
  const colors = { ...PATH_COLORS },
    parts = [...kinds].filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  parts.forEach(([kind], at) => (colors[kind] ??= [1, 3, 5, 6, 7, 8, 9][at % 7]));
  return section(
    "path",
    "Critical path",
    `The longest path of the replay: making anything else faster saves no time. Rows sum to ${show(total, "ns")}${rank.step ? ", the share of this step" : ""}.`,
    card(
      "By kind",
      null,
      stack([{ name: "", whole: total, parts: parts.map(([name, ns]) => ({ name, color: colors[name], ns })) }]),
    ),
    tableCard(
      "By kind, kernel, operator, module and line",
      null,
      "critical_path",
      rows.map((row) => ({ ...row, share: row.ns / (total || 1) })),
      { sort: "ns", jump: pathPlace },
    ),
  );
}

/** The longest element of a row. @type {(row: Row) => Place | null} */
function pathPlace({ id, start, end }) {
  const span = start === null ? null : { from: start, to: end };
  return id < 0 ? span : { ...ofRows([id]), orElse: span };
}
