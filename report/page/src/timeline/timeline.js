/* The timeline: lanes of nested calls on one time axis, drawn at the detail that the view can show. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el } from "../dom.js";
import { bare, short } from "../names.js";
import { fillOf, ink, Theme } from "../theme.js";
import { integers, numberOf, show, unitFor } from "../units.js";
import { AXIS, CPU_ROW, FOOT, GPU_ROW, LANE_GAP, LEAST_VIEW_NS, numbersOf, rowsOf, zoomOf } from "./blocks.js";
import { CriticalPath, PATH_STRIP } from "./critical.js";
import { Inspector } from "./inspector.js";
import { goBack } from "./jump.js";
import { keyHelp } from "./keys.js";
import { overlayData, overlaySeries } from "./overlay.js";
import { TimelineSearch } from "./search.js";
import { SelectedSpan } from "./span.js";
import { Tiles } from "./tiles.js";
import { LEAST_PX, visibleCalls } from "./visible.js";

const FOLDED = 3;
const FOLDED_MAIN = 24;
const TALL = 860;
const TEXT_PX = 34;

export class Timeline {
  /** `devices`: devices and their peaks. @param {TimelineData} data @param {Record<string, Row>} devices */
  constructor(data, devices = {}) {
    this.data = data;
    this.rows = rowsOf(data);
    this.names = new Set(data.names);
    this.tiles = new Tiles(data.tiles, () => this.redraw());
    this.numbers = numbersOf(data.count); // for each block, the number of its first event
    /** @type {any[]} */
    this.sources = [data]; // sources of drawn calls: merged blocks, then the tiles in view
    this.from = 0;
    this.to = data.span;
    /** Names that the search found. @type {Set<number> | null} */
    this.matches = null;
    /** Hits of the search, or of the row that led to the timeline. @type {import("./events.js").Hits | null} */
    this.hits = null;
    /** The shown step, null for the whole trace. @type {Step | null} */
    this.step = null;
    /** Null on a page without tiles. @type {Inspector | null} */
    this.inspector = null;
    /** @type {SelectedSpan | null} */
    this.span = null;
    /** Overlays that are drawn over the calls. @type {Overlay[]} */
    this.overlays = [];
    this.pending = 0;
    /** Position of each lane, px below the axis. @type {number[]} */
    this.tops = [];
    this.height = 0;
    /** Number of shown rows per lane. @type {Map<number, number>} */
    this.folded = new Map();
    const tall = data.lanes.reduce((sum, lane) => sum + lane.rows * (lane.gpu ? GPU_ROW : CPU_ROW) + LANE_GAP, 0);
    const main = data.lanes.findIndex((lane) => !lane.gpu);
    if (tall > TALL)
      data.lanes.forEach((lane, i) => {
        if (!lane.gpu && lane.rows > (i === main ? FOLDED_MAIN : FOLDED))
          this.folded.set(i, i === main ? FOLDED_MAIN : FOLDED);
      });
    /** @type {Chart} */
    this.chart = { instance: null, draw() {} }; // a placeholder until the chart is mounted
    this.build();
    this.critical = new CriticalPath(data.path, this);
    if (data.tiles) {
      this.inspector = new Inspector(this, devices);
      this.span = new SelectedSpan(this);
      this.node.append(this.inspector.node, this.span.node);
    }
    if (this.critical.size) this.node.append(this.critical.node);
    this.place();
  }

  build() {
    this.lanes = el("div", { class: "lanes" });
    this.canvas = el("div", { tabindex: 0, role: "application", "aria-label": "Timeline; press ? for its keys" });
    this.help = keyHelp();
    this.picked = el("div", { class: "picked" }, "Click a call for its details.");
    this.search = new TimelineSearch(this);
    const button = (/** @type {string} */ id, /** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) => el("button", { type: "button", id, title, onclick: act }, text);
    const tools = el(
      "div",
      { class: "tools" },
      this.search.node,
      this.search.said,
      el("span", { class: "said push" }, "drag to move · Ctrl + wheel to zoom · Shift + drag to select a span"),
      button("keys", "?", "Keys (?)", () => this.help.showModal()),
      button("zoom-in", "+", "Zoom in (w)", () => this.zoom(0.4)),
      button("zoom-out", "−", "Zoom out (s)", () => this.zoom(2.5)),
      button("zoom-all", "Fit", "Show the whole trace, or the chosen step", () => this.fit()),
    );
    this.node = el(
      "div",
      {},
      tools,
      ...["GPU", "CPU"].map((side) =>
        legend(this.data.kinds.filter((kind) => kind.gpu === (side === "GPU")), { side }),
      ),
      el("div", { class: "timeline" }, this.lanes, el("div", { class: "frame" }, this.canvas)),
      this.picked,
      this.help,
    );
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => this.wheel(event), { passive: false });
  }

  /** Set the position of every lane and row, in px below the axis. */
  place() {
    const above = this.critical.size ? PATH_STRIP : 0;
    let y = above;
    this.tops = this.data.lanes.map((lane, i) => {
      const top = y,
        rows = this.folded.get(i) ?? lane.rows;
      y += rows * (lane.gpu ? GPU_ROW : CPU_ROW) + LANE_GAP;
      return top;
    });
    this.height = y;
    this.lanes.replaceChildren(
      ...this.data.lanes.map((lane, i) => {
        const next = i + 1 < this.tops.length ? this.tops[i + 1] : y;
        const node = el(
          "div",
          { class: "lane", title: `${lane.name}\n${lane.note}` },
          el("b", {}, lane.name),
          next - this.tops[i] > 34 ? el("i", {}, lane.note) : null,
        );
        node.style.height = `${next - this.tops[i]}px`;
        if (!lane.gpu && lane.rows > FOLDED) {
          node.style.cursor = "pointer";
          node.addEventListener("click", () => {
            this.folded.delete(i) || this.folded.set(i, FOLDED);
            this.refold();
          });
        }
        return node;
      }),
    );
    this.lanes.style.paddingTop = `${AXIS + above}px`;
  }

  refold() {
    this.place();
    this.canvas.style.height = `${AXIS + this.height + FOOT}px`;
    this.chart.draw();
  }

  /** Add the details of events if the page has tiles. */
  get details() {
    if (!this.inspector) throw new Error("the page has no details");
    return this.inspector.details;
  }

  mount() {
    this.chart = chart(
      this.canvas,
      AXIS + this.height + FOOT,
      () => this.options(),
      (instance) => this.wire(instance),
    );
  }

  options() {
    this.font = Theme.value("sans");
    return {
      grid: { left: 0, right: 0, top: AXIS, bottom: FOOT, outerBoundsMode: "none" },
      tooltip: tooltip((item) => (item.seriesId === "calls" ? this.tip(this.at(item.data)) : null), {
        trigger: "item",
      }),
      xAxis: axis({
        type: "value",
        min: 0,
        max: this.data.span,
        position: "top",
        splitNumber: 7,
        axisLine: { show: false },
        axisLabel: {
          formatter: (value) => this.tick(value),
          hideOverlap: true,
          showMinLabel: false,
          showMaxLabel: false,
        },
      }),
      yAxis: [
        { type: "value", min: 0, max: this.height || 1, inverse: true, show: false },
        { type: "value", min: 0, max: 1, show: false },
      ],
      dataZoom: zoomOf(this.from, this.to),
      series: [
        {
          id: "load",
          type: "line",
          yAxisIndex: 1,
          data: this.data.load,
          symbol: "none",
          lineStyle: { opacity: 0 },
          silent: true,
          tooltip: { show: false },
        },
        {
          id: "calls",
          type: "custom",
          clip: true,
          encode: { x: [0, 1], y: -1 },
          progressive: 0,
          renderItem: (/** @type {any} */ _, /** @type {any} */ api) => this.draw(api),
          data: this.visible(),
        },
        overlaySeries(this),
      ],
    };
  }

  /** @param {any} instance */
  wire(instance) {
    instance.on("datazoom", () => {
      [this.from, this.to] = instance.getModel().getComponent("xAxis").axis.scale.getExtent();
      this.node.dataset.view = `${this.from} ${this.to}`;
      cancelAnimationFrame(this.pending);
      this.pending = requestAnimationFrame(() => this.redraw());
    });
    instance.on("click", (/** @type {any} */ item) => {
      if (item.seriesId === "calls") this.pick(this.at(item.data));
    });
    instance.on("dblclick", (/** @type {any} */ item) => {
      if (item.seriesId === "calls") this.fill(this.at(item.data));
    });
  }

  redraw() {
    this.chart.instance?.setOption({
      series: [
        { id: "calls", data: this.visible() },
        { id: "overlay", data: overlayData(this) },
      ],
    });
  }

  /**
   * Position of the row of an event or call, px; folded rows share the position of the last shown row.
   * @param {{lane: number, depth: number}} place
   */
  rowAt({ lane, depth }) {
    const tall = this.data.lanes[lane].gpu ? GPU_ROW : CPU_ROW,
      row = Math.min(depth, (this.folded.get(lane) ?? Infinity) - 1);
    return { y: AXIS + this.tops[lane] + row * tall + LANE_GAP / 2, tall: tall - 1 };
  }

  /** @param {number} clientX */
  timeAt(clientX) {
    const left = this.canvas.getBoundingClientRect().left;
    return this.from + ((this.to - this.from) * (clientX - left)) / this.canvas.clientWidth;
  }

  /** Description of an item of `visible()`: a call, or a block of merged calls. @param {number[]} item */
  at([, , , i, , , place]) {
    const of = this.sources[place],
      merged = place === 0;
    return {
      name: of.name[i],
      kind: this.data.kinds[of.kind[i]],
      ts: of.ts[i],
      dur: of.dur[i],
      op: of.op[i],
      lane: this.data.lanes[merged ? of.lane[i] : of.lane],
      count: merged ? of.count[i] : 1,
      event: this.data.tiles && (!merged || of.count[i] === 1) ? (merged ? this.numbers[i] : of.first + i) : null,
      busy: merged ? of.busy[i] : of.dur[i],
    };
  }

  /** Calls in the view. */
  visible() {
    return visibleCalls(this);
  }

  /** @param {any} api */
  draw(api) {
    const left = api.coord([api.value(0), 0]),
      right = api.coord([api.value(1), 0]);
    const block = api.value(3),
      tall = api.value(4),
      y = AXIS + api.value(2),
      place = api.value(6),
      source = this.sources[place];
    if (!source || !(block < source.name.length)) return null; // the item belongs to the previous view
    const a = Math.max(0, left[0]),
      b = Math.min(api.getWidth(), right[0]);
    const width = Math.max(LEAST_PX * 0.8, b - a - (b - a > 4 ? 1 : 0));
    const { names, kinds } = this.data,
      count = place ? 1 : source.count[block],
      faded = this.matches && !this.matches.has(source.name[block]);
    const { color } = kinds[source.kind[block]];
    const text =
      width < TEXT_PX || faded ? "" : count > 1 ? numberOf(count, "call") : bare(names[source.name[block]]);
    return {
      type: "rect",
      shape: { x: a, y, width, height: tall },
      style: { fill: fillOf(color), opacity: faded ? 0.13 : 0.3 + 0.7 * api.value(5) },
      textConfig: { position: "insideLeft", distance: 4 },
      textContent: {
        // return empty elements as well, because the chart reuses elements from the previous view
        type: "text",
        style: {
          text,
          fill: ink(Theme.color(color)),
          fontSize: tall > 18 ? 12 : 11,
          fontFamily: this.font,
          width: Math.max(1, width - 8),
          overflow: "truncate",
          ellipsis: "",
        },
      },
    };
  }

  /** @param {ReturnType<Timeline["at"]>} item */
  tip({ name, kind, ts, dur, count, busy, op, lane }) {
    const { names } = this.data,
      many = count > 1;
    return tip(
      short(names[name], 180),
      [
        many ? ["merged calls, named after the longest", integers.format(count)] : null,
        ["kind", kind.name],
        ["on", lane.name],
        op >= 0 ? ["launched by", short(names[op], 60)] : null,
        ["start", show(ts, "ns")],
        [many ? "first to last" : "duration", show(dur, "ns")],
        many ? ["busy", show(busy, "ns")] : null,
      ],
    );
  }

  /** @param {ReturnType<Timeline["at"]>} item */
  pick(item) {
    this.sayOf(item);
    if (item.event === null) this.inspector?.clear();
    else this.inspector?.select(item.event);
  }

  /** @param {ShownItem} item */
  sayOf({ name, kind, ts, dur, count = 1, op, lane }) {
    Object.assign(this.picked.dataset, { ts, dur, count });
    this.say(name, [
      kind.name,
      lane.name,
      `start ${show(ts, "ns")}`,
      `duration ${show(dur, "ns")}`,
      count > 1 ? `${integers.format(count)} merged calls; zoom in to see each call` : null,
      op >= 0 ? `launched by ${this.data.names[op]}` : null,
    ]);
  }

  /** @param {number} name @param {(string | null)[]} facts */
  say(name, facts) {
    this.picked.replaceChildren(el("code", {}, this.data.names[name]), " — ", facts.filter(Boolean).join(" · "));
  }

  /** @param {{ts: number, dur: number}} event */
  fill({ ts, dur }) {
    const room = Math.max(20, dur * 0.06);
    this.show(ts - room, ts + dur + room);
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const span = this.data.span,
      least = Math.min(span, Math.max(to - from, LEAST_VIEW_NS));
    const start = Math.max(0, Math.min(from, span - least));
    this.chart.instance.dispatchAction({
      type: "dataZoom",
      startValue: start,
      endValue: Math.min(span, start + least),
    });
  }

  /** Set the shown step, before the chart is drawn. @param {Step} step */
  showStep(step) {
    this.step = step;
    this.from = step.from;
    this.to = step.to;
    this.node.dataset.view = `${this.from} ${this.to}`;
  }

  /** Show the whole step, or the whole trace if no step is chosen. */
  fit() {
    const { from, to } = this.step ?? { from: 0, to: this.data.span };
    this.show(from, to);
  }

  /** Scale the length of the view by a factor. The time `at` stays at the same position on the screen. @param {number} by @param {number} at */
  zoom(by, at = (this.from + this.to) / 2) {
    this.show(at - by * (at - this.from), at + by * (this.to - at));
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) / 350), this.timeAt(event.clientX));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = (this.to - this.from) * 0.25;
    /** @type {Record<string, () => unknown>} */
    const acts = {
      w: () => this.zoom(0.5),
      s: () => this.zoom(2),
      a: () => this.show(this.from - step, this.to - step),
      d: () => this.show(this.from + step, this.to + step),
      n: () => this.critical.walk(1),
      p: () => this.critical.walk(-1),
      c: () => this.critical.toggle(),
      ".": () => this.hits?.step(1),
      ",": () => this.hits?.step(-1),
      "/": () => this.search?.input.focus(),
      Backspace: () => goBack(),
      "[": () => this.inspector?.event && this.span?.setEnd("from", this.inspector.event.ts),
      "]": () => this.inspector?.event && this.span?.setEnd("to", this.inspector.event.ts + this.inspector.event.dur),
      "?": () => this.help?.showModal(),
    };
    const act = acts[event.key] ?? this.inspector?.act(event.key);
    if (event.ctrlKey || event.metaKey || event.altKey || !act) return;
    act();
    event.preventDefault();
  }

  /** @param {number} value */
  tick(value) {
    const [unit, factor] = unitFor("ns", Math.max(this.to, 1) / 2),
      step = (this.to - this.from) / 7 / factor;
    return `${(value / factor).toFixed(Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(step)))))} ${unit}`;
  }
}
