/* Small helpers: elements (always textContent, never innerHTML), numbers with units, colours of the theme. */

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const metric = (unit, prefixes) => prefixes.map((prefix, i) => [prefix + unit, 1000 ** i]);
const SCALES = {
  ns: [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]],
  bytes: metric("B", ["", "k", "M", "G", "T"]),
  flop: metric("FLOP", ["", "k", "M", "G", "T", "P"]),
  "flop/s": metric("FLOP/s", ["", "k", "M", "G", "T", "P"]),
  "bytes/s": metric("B/s", ["", "k", "M", "G", "T"]),
};

/** The unit in which a value of this size reads best: [name, factor]. */
function unitFor(unit, largest) {
  const scale = SCALES[unit];
  let best = scale[0];
  for (const step of scale) if (Math.abs(largest) >= step[1]) best = step;
  return best;
}

const integers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function plain(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return integers.format(value);
  if (size < 0.001) return value.toExponential(1);
  const places = Math.max(0, 2 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(places, 6));
}

/** A number with its unit, as text: "12.3 µs", "45.6 %", "1,234". */
function show(value, unit) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (unit === "share") return `${percent(value)} %`;
  if (unit === "count") return integers.format(value);
  if (!SCALES[unit]) return unit ? `${plain(value)} ${unit}` : plain(value);
  const [name, factor] = unitFor(unit, value);
  return `${plain(value / factor)} ${name}`;
}

function percent(share) {
  const value = 100 * share;
  return value === 0 || value === 100 ? String(value) : value < 0.1 && value > 0 ? "< 0.1" : value.toFixed(1);
}

/** The same on an axis: no zeros behind the point. */
function neat(value, unit) {
  return show(value, unit)
    .replace(/(\.\d*?)0+(?= |$)/, "$1")
    .replace(/\.(?= |$)/, "");
}

const LONGEST_NAME = 400; // where names of the timeline are cut

/** Readable names of the kernels of the rank that is shown, by their own. */
const kernelLabels = new Map();

function useKernelLabels(labels) {
  kernelLabels.clear();
  for (const [name, label] of Object.entries(labels)) {
    kernelLabels.set(name, label);
    if (name.length > LONGEST_NAME) kernelLabels.set(`${name.slice(0, LONGEST_NAME - 1)}…`, label);
  }
}

/** Long names with their middle left out; kernels by their readable names, modules without "nn.Module". */
function short(name, most = 60) {
  name = bare(name);
  return name.length <= most
    ? name
    : `${name.slice(0, Math.ceil(most * 0.7))}…${name.slice(name.length - Math.floor(most * 0.3) + 1)}`;
}

function bare(name) {
  return kernelLabels.get(name) ?? name.replace(/^(?:void |nn\.Module: )/, "");
}

const PALETTE = {
  light: [
    "#2f52bd", "#dfa01e", "#cc3a32", "#40b8ae", "#388f45", "#dc6aa5", "#7a3fc4", "#9cc6fa",
    "#845c3e", "#8d96a3", "#ccd5e6",
  ],
  dark: [
    "#5579ee", "#f7cc62", "#ee5f54", "#6fdccf", "#5ab566", "#e276b1", "#8650dc", "#a9ccff",
    "#a5774f", "#a0abb8", "#47546e",
  ],
};

const Theme = {
  choice: "auto",
  system: matchMedia("(prefers-color-scheme: dark)"),
  paper: false,
  get name() {
    if (this.paper) return "light";
    return this.choice === "auto" ? (this.system.matches ? "dark" : "light") : this.choice;
  },
  /** A colour by its place in the palette, or by its name in the style. */
  colour(which) {
    const colours = PALETTE[this.name];
    return typeof which === "string" ? this.value(which) : colours[which % colours.length];
  },
  value(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },
  apply() {
    document.documentElement.dataset.theme = this.name;
    setLook();
  },
};

/** Content of a tooltip: a heading and rows of label and value. */
function tip(heading, rows) {
  return el(
    "div",
    { class: "tip" },
    el("b", {}, heading),
    rows
      .filter((row) => row[1] !== null && row[1] !== undefined)
      .map(([label, value]) => el("div", {}, el("span", {}, label), el("span", {}, value))),
  );
}

/** A patch of a colour (see `Theme.colour`); it follows the theme by itself. */
function swatch(colour) {
  const node = el("span", { class: "swatch" });
  node.style.background = backgroundOf(colour);
  return node;
}

/** Colours and what they mean, {name, colour}; null without any. */
function legend(kinds, { side = null, more = null } = {}) {
  const named = kinds.map((kind) => el("span", {}, swatch(kind.colour), kind.name));
  return kinds.length ? el("div", { class: "legend" }, side ? el("b", {}, side) : null, named, more) : null;
}

/** What is said beside a heading or a number, if anything. */
const small = (text) => (text ? el("small", {}, text) : null);

/** A sentence in place of what the trace does not have. */
const none = (text) => el("p", { class: "none" }, text);

/** A list of texts; null without any. */
function listed(kind, texts) {
  return texts.length ? el("ul", { class: kind }, texts.map((text) => el("li", {}, text))) : null;
}

/** Labels and their values. */
function factList(rows) {
  return el("dl", { class: "facts" }, rows.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));
}

/** Call `move` with each place of a pointer that is held down, and `up` with the last. */
function dragged(move, up = () => {}) {
  const end = (event) => {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    up(event);
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
}

const charts = new Set();

/** Draw something that is not a chart of the library when those are drawn: on another theme or size of the window. */
function drawnWithCharts(one) {
  charts.add({ draw: () => one.draw(), instance: { dispose() {}, resize: () => one.draw() } });
}

/** Start a chart in an element, with what all charts share; `options()` is asked again when the theme changes. */
function chart(node, height, options, ready = () => {}) {
  const one = { node, options, ready, instance: null };
  node.style.height = `${height}px`;
  node.classList.add("chart");
  charts.add(one);
  one.draw = () => {
    if (one.instance) one.instance.dispose();
    one.instance = echarts.init(node, null, { renderer: "canvas" });
    const described = node.hasAttribute("aria-label");
    one.instance.setOption({ ...common(), aria: { enabled: !described }, ...options() });
    ready(one.instance);
  };
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

function tooltip(formatter, more = {}) {
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

/** What an axis looks like; `unit` is that of its numbers. */
function axis({ unit, axisLabel, ...more } = {}) {
  const line = { lineStyle: { color: Theme.value("line") } },
    text = { color: Theme.value("muted"), fontSize: 12 };
  const formatter = unit === undefined ? undefined : (value) => neat(value, unit);
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
