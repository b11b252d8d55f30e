/* A span of time selected in the timeline, and tables of its events. */

import { dragged, el } from "../dom.js";
import { table } from "../table.js";
import { exactMs, show } from "../units.js";
import { firstEnding } from "./blocks.js";

export class SelectedSpan {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** Ends of the span, ns. @type {{from: number, to: number} | null} */
    this.selected = null;
    this.asked = 0;
    const label = "Events in the selected span";
    this.node = el("div", { class: "in-span", role: "region", hidden: true, "aria-label": label });
    const frame = timeline.canvas;
    for (const kind of ["pointerdown", "mousedown"])
      frame.addEventListener(kind, (/** @type {MouseEvent} */ event) => this.press(event, kind), true);
  }

  /** Handle Shift + drag, which the chart does not receive. @param {MouseEvent} event @param {string} kind */
  press(event, kind) {
    if (!event.shiftKey || event.button !== 0) return;
    event.stopPropagation();
    if (kind !== "pointerdown") return event.preventDefault();
    const start = this.timeline.timeAt(event.clientX);
    dragged(
      (moved) => this.preview(start, this.timeline.timeAt(moved.clientX)),
      (last) => this.set(start, this.timeline.timeAt(last.clientX)),
    );
  }

  /** @param {number} one @param {number} other */
  preview(one, other) {
    const { span } = this.timeline.data;
    this.selected = { from: Math.round(Math.max(0, Math.min(one, other))), to: Math.round(Math.min(span, Math.max(one, other))) };
    this.timeline.redraw();
    return this.selected;
  }

  clear() {
    this.asked++;
    this.selected = null;
    this.node.hidden = true;
    this.timeline.redraw();
  }

  /** Set an end of the span; by default it reaches to the end of the view. @param {"from" | "to"} which @param {number} time */
  setEnd(which, time) {
    const { from, to } = this.timeline,
      { selected } = this;
    if (which === "from") this.set(time, selected && selected.to > time ? selected.to : to);
    else this.set(selected && selected.from < time ? selected.from : from, time);
  }

  /** Select a span, ns, and list the events in it. @param {number} one @param {number} other */
  async set(one, other) {
    const { from, to } = this.preview(one, other);
    if (to <= from) return this.clear();
    const asked = ++this.asked;
    const totals = await this.totals(from, to, () => asked === this.asked);
    if (totals) this.show(from, to, totals);
  }

  /**
   * Number and time of events within the span, by kind and name and by launching operator; null once `wanted` is false.
   * @param {number} from
   * @param {number} to
   * @param {() => boolean} wanted
   */
  async totals(from, to, wanted) {
    const { tiles, rows } = this.timeline,
      /** @type {Map<number, Total>} */ byName = new Map(),
      /** @type {Map<number, Total>} */ byOp = new Map(),
      lanes = this.timeline.data.lanes;
    const add = (/** @type {Map<number, Total>} */ map, /** @type {number} */ key, /** @type {Omit<Total, "count" | "total">} */ first, /** @type {number} */ ns) => {
      const found = map.get(key);
      if (found) {
        found.count += 1;
        found.total += ns;
      } else map.set(key, { ...first, count: 1, total: ns });
    };
    for (const { lane, depth } of rows)
      for (const i of tiles.within(lane, depth, from, to)) {
        const { ts, dur, name, kind, op, count } = tiles.decoded.get(i) ?? (await tiles.decode(i));
        if (!wanted()) return null;
        for (let k = firstEnding(ts, dur, 0, count, from); k < count && ts[k] < to; k++) {
          const ns = Math.min(to, ts[k] + dur[k]) - Math.max(from, ts[k]);
          if (ns < 0 || (ns === 0 && dur[k] > 0)) continue; // the event only touches the span
          add(byName, kind[k] * 2 ** 32 + name[k], { name: name[k], kind: kind[k], gpu: lanes[lane].gpu }, ns);
          if (lanes[lane].gpu) add(byOp, op[k], { name: op[k] }, ns);
        }
      }
    return { byName: [...byName.values()], byOp: [...byOp.values()] };
  }

  /** @param {number} from @param {number} to @param {{byName: Total[], byOp: Total[]}} totals */
  show(from, to, { byName, byOp }) {
    const { names, kinds } = this.timeline.data,
      length = to - from;
    const rows = (/** @type {Total[]} */ found) =>
      found.map(({ name, kind, count, total }) => ({
        name: name >= 0 ? names[name] : "unknown",
        kind: kind === undefined ? null : kinds[kind].name,
        count,
        total,
        share: total / length,
      }));
    const part = (/** @type {string} */ heading, /** @type {string} */ key, /** @type {Total[]} */ found) =>
      found.length ? [el("h4", {}, heading), table(`span-${key}`, rows(found), { sort: "total" })] : [];
    this.node.hidden = false;
    this.node.replaceChildren(
      el(
        "header",
        {},
        el("h3", {}, `${show(length, "ns")} selected`),
        el("span", { class: "said" }, `${exactMs(from)} to ${exactMs(to)}`),
        el("button", { type: "button", onclick: () => this.clear() }, "Clear"),
      ),
      ...part("GPU events by operator", "op", byOp),
      ...part("GPU events by name", "gpu", byName.filter((one) => one.gpu)),
      ...part("CPU calls", "cpu", byName.filter((one) => !one.gpu)),
    );
    this.node.dataset.span = `${from} ${to}`;
  }
}
