/* Step lines over the time of the trace. */

import { axis, chart, legend, tip, tooltip } from "./chart.js";
import { el } from "./dom.js";
import { shownTime } from "./steps.js";
import { DASHES, patternOf, Theme } from "./theme.js";
import { show } from "./units.js";

const NAMED_CURVES = 8;

/**
 * Step lines over the time of the trace; `mark` is a point to label, {ts, value, name}.
 * @param {Rank} rank
 * @param {Counter[]} list
 * @param {string} unit
 * @param {{mark?: Mark | null}} [options]
 */
export function curves(rank, list, unit, { mark = null } = {}) {
  const node = el("div"),
    shown = list.slice(0, NAMED_CURVES);
  chart(node, 230, () => ({
    grid: { left: 74, right: 24, top: 18, bottom: 26 },
    tooltip: tooltip(
      (/** @type {any[]} */ items) =>
        tip(
          show(items[0].value[0], "ns"),
          items.map((item) => [item.seriesName, show(item.value[1], unit)]),
        ),
      { trigger: "axis" },
    ),
    xAxis: axis({ type: "value", ...(rank.step ? shownTime(rank) : { min: 0 }), unit: "ns", axisLabel: { hideOverlap: true } }),
    yAxis: axis({ type: "value", min: 0, unit }),
    dataZoom: [{ type: "inside", filterMode: "none" }],
    series: shown.map((one, i) => ({
      name: one.title,
      type: "line",
      step: "end",
      showSymbol: false,
      lineStyle: { width: 1.4, color: Theme.color(i), type: DASHES[patternOf(i)] },
      itemStyle: { color: Theme.color(i) },
      areaStyle: shown.length === 1 ? { color: Theme.color(i), opacity: 0.14 } : undefined,
      data: one.ts.map((ts, k) => [ts, one.values[k]]),
      markPoint: mark && i === 0 ? marked(mark) : undefined,
    })),
  }));
  const more = list.length > shown.length ? ` (${shown.length} of ${list.length})` : "";
  return el("div", {}, node, legend(shown.map((one, i) => ({ name: one.title, color: i })), { more }));
}

/** @param {Mark} mark */
export function marked({ ts, value, name }) {
  return {
    symbol: "circle",
    symbolSize: 9,
    data: [{ coord: [ts, value], name }],
    label: { show: true, position: "left", distance: 8, color: Theme.value("text"), formatter: () => name },
  };
}
