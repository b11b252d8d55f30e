/* Stacked horizontal bars: parts of a time or size. */

import { axis, chart, legend, tip, tooltip } from "./chart.js";
import { el } from "./dom.js";
import { short } from "./names.js";
import { fillOf, ink, Theme } from "./theme.js";
import { percent, show } from "./units.js";

const LABEL_PX = 24;

/**
 * Stacked horizontal bars: rows of {name, whole, parts: [{name, color, ns}]}; parts with the same name share a color.
 * @param {Bar[]} rows
 * @param {{unit?: string, click?: ((at: number) => void) | null}} [options]
 */
export function stack(rows, { unit = "ns", click = null } = {}) {
  const names = [
    ...new Map(rows.flatMap((row) => row.parts.filter((part) => part.ns > 0).map((part) => [part.name, part.color]))),
  ];
  const node = el("div"),
    height = rows.length > 24 ? 18 : 30,
    shown = rows.slice().reverse(),
    widest = Math.max(...rows.map((row) => row.whole)) || 1,
    labeled = rows.some((row) => row.name);
  chart(
    node,
    Math.max(34, rows.length * height) + (labeled ? 26 : 0),
    () => ({
      grid: {
        left: 0,
        right: 8,
        top: 0,
        bottom: 0,
        outerBoundsMode: "same",
        outerBounds: { left: 0, right: 8, top: 0, bottom: 0 },
      },
      tooltip: tooltip((item) => {
        const row = shown[item.dataIndex],
          part = row.parts.find((one) => one.name === item.seriesName);
        if (!part) return null;
        return tip(row.name ? `${row.name}: ${part.name}` : part.name, [
          [unit === "ns" ? "time" : "size", show(part.ns, unit)],
          ["share", show(part.ns / (row.whole || 1), "share")],
        ]);
      }),
      xAxis: axis({
        type: "value",
        max: widest,
        show: labeled,
        splitNumber: 6,
        splitLine: { show: labeled, lineStyle: { color: Theme.value("line") } },
        unit,
        axisLabel: { hideOverlap: true },
      }),
      yAxis: axis({
        type: "category",
        data: shown.map((row) => short(row.name, 26)),
        show: labeled,
        axisLine: { show: false },
      }),
      series: names.map(([name, color]) => ({
        name,
        type: "bar",
        stack: "all",
        barWidth: height < LABEL_PX ? height - 5 : height - 10,
        barMinHeight: 0,
        itemStyle: { color: fillOf(color), borderColor: Theme.value("card"), borderWidth: 0.5 },
        data: shown.map((row) => row.parts.find((part) => part.name === name)?.ns ?? 0),
        label: {
          show: height >= LABEL_PX,
          color: color === "line" ? Theme.value("muted") : ink(Theme.color(color)),
          fontSize: 11.5,
          overflow: "truncate",
          formatter: (item) =>
            item.value / widest > 0.06 ? `${percent(item.value / (shown[item.dataIndex].whole || 1))} %` : "",
        },
      })),
    }),
    (instance) => {
      if (click) instance.on("click", (/** @type {any} */ item) => click(shown.length - 1 - item.dataIndex));
    },
  );
  const sum = (/** @type {string} */ name) => ` ${show(rows[0].parts.find((part) => part.name === name)?.ns, unit)}`;
  const kinds = names.map(([name, color]) => ({ name: rows.length === 1 ? name + sum(name) : name, color }));
  return el("div", {}, node, legend(kinds));
}
