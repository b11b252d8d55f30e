/* Lines of the program by file, and phases. */

import { el, small } from "../dom.js";
import { card, leftOut, section } from "../layout.js";
import { tableCard } from "../table.js";
import { jumpTo } from "../timeline/jump.js";
import { ofLine } from "../timeline/places.js";
import { show } from "../units.js";

const LINES_SHOWN = 200;

/** @type {Section} */
export function sourceSection(report, rank) {
  const { sources, phases } = rank.analysis;
  if (!sources.length && !phases.some((row) => row.phase !== "not known")) return null;
  const device = sources.some((row) => row.device_self_ns),
    heat = device ? "device_self_ns" : "host_ns";
  return section(
    "source",
    "Source",
    sources.length
      ? "GPU work is assigned to the innermost line of your code that called it, and backward work to the line of the forward operator."
      : null,
    sources.length ? filesCard(sources, heat, leftOut(rank, "sources")) : null,
    tableCard(
      "By source line",
      leftOut(rank, "sources"),
      "sources",
      sources.map((row) => ({
        ...row,
        place: `${row.file}:${row.line}`,
        remark: [row.own ? "" : "library code", row.fused ? `${row.fused} fused` : ""].filter(Boolean).join(", "),
      })),
      { sort: heat, jump: sourcePlace },
    ),
    tableCard("By phase", null, "phases", phases, { sort: "", filter: false, jump: phasePlace }),
  );
}

/** The longest GPU event of a row, or its longest operator. @type {PlaceOf} */
const sourcePlace = ({ place, device_self_ns }) => ofLine(place, device_self_ns > 0);

/** @type {PlaceOf} */
const phasePlace = ({ phase, launches }) => ({
  gpu: launches > 0,
  has: (columns, i, texts) => (texts.phases[columns.phase[i]] || "not known") === phase,
});

/**
 * Files, longest time first, with their lines in order; a bar shows the time of a line.
 * @param {Row[]} sources
 * @param {string} heat
 * @param {string | null} note
 */
function filesCard(sources, heat, note) {
  /** @type {Map<string, Row[]>} */
  const files = new Map();
  for (const row of sources)
    if (row[heat] > 0) files.set(row.file, [...(files.get(row.file) ?? []), row]);
  const sum = (/** @type {Row[]} */ rows) => rows.reduce((total, row) => total + row[heat], 0),
    most = Math.max(...sources.map((row) => row[heat]), 1),
    ordered = [...files].sort((a, b) => sum(b[1]) - sum(a[1])),
    list = el("div", { class: "files" });
  const input = el("input", { type: "search", placeholder: "Search files and functions…", "aria-label": "Search files" });
  const draw = () => {
    const wanted = input.value.toLowerCase();
    let left = LINES_SHOWN;
    list.replaceChildren();
    for (const [file, rows] of ordered) {
      const whole = file.toLowerCase().includes(wanted),
        found = rows.filter((row) => whole || row.function.toLowerCase().includes(wanted));
      if (!found.length || left <= 0) continue;
      const lines = found.sort((a, b) => a.line - b.line).slice(0, left);
      left -= lines.length;
      list.append(
        el("h4", {}, el("code", {}, file), " ", small(show(sum(rows), "ns"))),
        ...lines.map((row) => {
          const bar = el("span", { class: "heat" }),
            share = row[heat] / most;
          bar.style.width = `${(100 * share).toFixed(2)}%`;
          return el(
            "button",
            {
              type: "button",
              class: "line",
              "data-line": `${file}:${row.line}`,
              title: `${file}:${row.line} ${row.function}`,
              onclick: (/** @type {any} */ event) => jumpTo(sourcePlace({ ...row, place: `${file}:${row.line}` }), event.currentTarget),
            },
            bar,
            el("span", { class: "number" }, String(row.line)),
            el("code", {}, row.function),
            el("span", { class: "push" }, show(row[heat], "ns")),
          );
        }),
      );
    }
  };
  input.addEventListener("input", draw);
  draw();
  return card("Lines by file", note, input, list);
}
