/* A job with many ranks: key figures of all ranks, and the ranks that stand out. */

import { axis, chart, charts, legend, tip, tooltip } from "../chart.js";
import { el } from "../dom.js";
import { card, section, tile } from "../layout.js";
import { $, page } from "../state.js";
import { tableCard } from "../table.js";
import { Theme } from "../theme.js";
import { integers, numberOf, show } from "../units.js";

const RANKS_HEIGHT = 260;
const OTHERS = 0;
const STANDS_OUT = 1;

/**
 * Chart of a quantity, one dot per rank. Outliers have another color; a click opens a rank shown in detail.
 * @param {ManyRanks} many
 * @param {Quantity} quantity
 * @param {(rank: number) => void} choose
 */
function rankDots(many, quantity, choose) {
  const node = el("div", { "aria-label": `${quantity.title}, per rank` }),
    far = new Set(quantity.outliers),
    dots = (/** @type {boolean} */ out) =>
      many.numbers
        .map((rank, at) => [rank, quantity.values[at]])
        .filter(([rank, value]) => value !== null && far.has(/** @type {number} */ (rank)) === out);
  chart(
    node,
    RANKS_HEIGHT,
    () => ({
      grid: { left: 0, right: 12, top: 12, bottom: 0, outerBoundsMode: "same", outerBounds: { left: 0, right: 12, top: 12, bottom: 0 } },
      tooltip: tooltip((item) => tip(`rank ${item.value[0]}`, [[quantity.title, show(item.value[1], "ns")]])),
      xAxis: axis({ type: "value", min: "dataMin", max: "dataMax", minInterval: 1, splitLine: { show: false } }),
      yAxis: axis({ type: "value", scale: true, splitNumber: 4, unit: "ns" }),
      series: [
        { name: "Ranks", type: "scatter", symbolSize: 4, itemStyle: { color: Theme.color(OTHERS) }, data: dots(false) },
        {
          name: "Stand out",
          type: "scatter",
          symbol: "diamond",
          symbolSize: 10,
          itemStyle: { color: Theme.color(STANDS_OUT) },
          data: dots(true),
        },
      ],
    }),
    (instance) => instance.on("click", (/** @type {any} */ item) => choose(item.value[0])),
  );
  return el("div", {}, node, legend([{ name: "Ranks", color: OTHERS }, { name: "Stand out", color: STANDS_OUT }]));
}

/** @param {Report} report */
export function manySection(report) {
  const { many } = report;
  if (!many) return null;
  const place = (/** @type {number} */ rank) => report.ranks.findIndex((one) => one.rank === rank),
    said = el("div", { class: "picked", role: "status" }),
    drawn = el("div");
  const choose = (/** @type {number} */ rank) => {
    const at = place(rank);
    if (at < 0) {
      said.replaceChildren(`rank ${rank} is not on this page: `, el("code", {}, `etplus report … --ranks ${rank}`));
      return;
    }
    $("rank").value = at;
    page.draw(at);
  };
  const pick = el(
    "select",
    { "aria-label": "Quantity", onchange: () => plot() },
    many.quantities.map((one, at) => el("option", { value: at }, one.title)),
  );
  const plot = () => {
    for (const one of charts) {
      if (!drawn.contains(one.node)) continue;
      one.instance?.dispose();
      charts.delete(one);
    }
    drawn.replaceChildren(rankDots(many, many.quantities[pick.value || 0], choose));
    for (const one of charts) if (drawn.contains(one.node) && drawn.isConnected) one.draw();
  };
  plot();
  const list = (/** @type {number[]} */ ranks) => (ranks.length ? `${ranks.slice(0, 12).join(", ")}${ranks.length > 12 ? ", …" : ""}` : "none");
  const cards = many.tables.map(({ title, name, columns, rows, left_out }) =>
    tableCard(
      title,
      left_out ? `${numberOf(left_out, "more row")} not shown` : null,
      `job_${name}`,
      rows,
      { columns, sort: "", click: columns[0].title === "rank" ? (row) => choose(row[0]) : undefined },
    ),
  );
  return section(
    "many",
    "All ranks",
    `The other sections show ${report.ranks.length} of ${integers.format(many.numbers.length)} ranks: outliers, the first and the middle rank. Click a rank to show it.`,
    el(
      "div",
      { class: "tiles" },
      tile("Ranks", integers.format(many.numbers.length), `${report.ranks.length} in detail`),
      tile("Stragglers", integers.format(many.stragglers.length), list(many.stragglers)),
      tile("Stand out", integers.format(many.outliers.length), list(many.outliers)),
    ),
    card("All ranks", null, el("div", { class: "tools" }, pick), drawn, said),
    ...cards,
  );
}
