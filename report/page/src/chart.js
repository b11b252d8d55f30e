/* Charts with their shared options, tooltips and legends. */

import { el } from "./dom.js";
import { backgroundOf, Theme } from "./theme.js";
import { neat } from "./units.js";

/** Functions that draw again when the theme or the window size changes. @type {Set<Chart>} */
export const charts = new Set();

/**
 * Draw something without the chart library now, and again when the theme or the window size changes.
 * @param {{draw: () => void}} one
 */
export function drawnWithCharts(one) {
  charts.add({ draw: () => one.draw(), instance: { dispose() {}, resize: () => one.draw() } });
}

/**
 * Start a chart in an element, with the options that all charts share; a theme change calls `options()` again.
 * @param {HTMLElement} node
 * @param {number} height
 * @param {() => ChartOptions} options
 * @param {(instance: any) => void} ready
 */
export function chart(node, height, options, ready = () => {}) {
  /** @type {Chart} */
  const one = { node, instance: null, draw };
  node.style.height = `${height}px`;
  node.classList.add("chart");
  charts.add(one);
  function draw() {
    one.instance?.dispose();
    one.instance = echarts.init(node, null, { renderer: "canvas" });
    const described = node.hasAttribute("aria-label");
    one.instance.setOption({ ...common(), aria: { enabled: !described }, ...options() });
    ready(one.instance);
  }
  return one;
}

function common() {
  return {
    animation: false,
    textStyle: { fontFamily: Theme.value("sans"), color: Theme.value("text") },
    backgroundColor: "transparent",
    tooltip: tooltip(),
  };
}

/** @param {(item: any) => Node | string | null} [formatter] @param {object} [more] */
export function tooltip(formatter, more = {}) {
  return {
    confine: true,
    backgroundColor: Theme.value("card"),
    borderColor: Theme.value("line"),
    borderWidth: 1,
    padding: [7, 10],
    textStyle: { color: Theme.value("text"), fontSize: 12.5 },
    transitionDuration: 0,
    extraCssText: "box-shadow:0 6px 20px rgb(0 0 0 / 18%);border-radius:8px;",
    formatter,
    ...more,
  };
}

/** Options of an axis. @param {AxisOptions} [options] */
export function axis({ unit, axisLabel, ...more } = {}) {
  const line = { lineStyle: { color: Theme.value("line") } },
    text = { color: Theme.value("muted"), fontSize: 12 };
  const formatter = unit === undefined ? undefined : (/** @type {number} */ value) => neat(value, unit);
  return {
    axisLine: line,
    axisTick: { show: false },
    splitLine: line,
    minorSplitLine: { show: false },
    axisLabel: { ...text, formatter, ...axisLabel },
    nameTextStyle: text,
    ...more,
  };
}

/** Content of a tooltip: a heading and rows of label and value. @param {string} heading @param {(any[] | null)[]} rows */
export function tip(heading, rows) {
  return el(
    "div",
    { class: "tip" },
    el("b", {}, heading),
    rows
      .filter((row) => row !== null)
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([label, value]) => el("div", {}, el("span", {}, label), el("span", {}, value))),
  );
}

/** A patch of a color (see `Theme.color`); it follows the theme without a redraw. @param {Color} color */
export function swatch(color) {
  const node = el("span", { class: "swatch" });
  node.style.background = backgroundOf(color);
  return node;
}

/**
 * A legend of kinds, {name, color}; null without kinds.
 * @param {Kind[]} kinds
 * @param {{side?: string | null, more?: Content}} [options]
 */
export function legend(kinds, { side = null, more = null } = {}) {
  const named = kinds.map((kind) => el("span", {}, swatch(kind.color), kind.name));
  return kinds.length ? el("div", { class: "legend" }, side ? el("b", {}, side) : null, named, more) : null;
}
