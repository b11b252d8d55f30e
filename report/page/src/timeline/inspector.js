/* The event selected in the timeline: its details, arrows to related events, and keys that follow them. */

import { swatch } from "../chart.js";
import { el } from "../dom.js";
import { short } from "../names.js";
import { page } from "../state.js";
import { exactMs, integers, show } from "../units.js";
import { Details } from "./details.js";
import { callFacts, deviceFacts, fact, RELATION_TEXTS, time } from "./facts.js";
import { goBack, rowButton } from "./jump.js";

const LISTED = 12; // number of related events per kind that are listed at first
const ARROWS = 80;
const LONG_FACT = 90; // facts with more characters than this get their own line

export class Inspector {
  /** `devices`: devices and their peaks. @param {Timeline} timeline @param {Record<string, Row>} devices */
  constructor(timeline, devices) {
    this.timeline = timeline;
    this.devices = devices;
    this.details = new Details(timeline.data.details, timeline.tiles, timeline.data.lanes);
    /** @type {DetailedEvent | null} */
    this.event = null;
    /** @type {Arrow[]} */
    this.arrows = [];
    this.asked = 0;
    const label = "Details of the selected event";
    this.node = el("div", { class: "details", role: "region", hidden: true, tabindex: -1, "aria-label": label });
    this.node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      this.timeline.canvas.focus();
      event.preventDefault();
    });
  }

  /**
   * Select an event by its number: draw it, its arrows and its details.
   * @param {number} number
   * @param {{reveal?: boolean, focus?: boolean}} [options]
   */
  async select(number, { reveal = false, focus = false } = {}) {
    const asked = ++this.asked;
    this.timeline.critical.at = null;
    const [event, texts] = await Promise.all([this.details.of(number), this.details.texts()]);
    const caller = Details.first(event.sources, "operator"),
      operator = caller === null ? null : await this.details.of(caller);
    if (operator) operator.full = texts.names[operator.name];
    const callers = (await this.callersOf(operator ?? event)).map((one) => texts.names[one.name]);
    const arrows = await this.arrowsOf(event);
    if (asked !== this.asked) return; // another event has been selected in the meantime
    this.event = event;
    this.arrows = arrows;
    this.panel(event, texts, operator, callers);
    this.timeline.picked.dataset.event = number;
    if (reveal) this.reveal(event);
    this.timeline.redraw();
    const { kinds, lanes } = this.timeline.data;
    this.timeline.sayOf({ ...event, kind: kinds[event.kind], lane: lanes[event.lane] });
    if (focus) this.node.focus();
    this.node.dataset.arrows = JSON.stringify(arrows.map((one) => [one.kind, one.from.number, one.to.number]));
    this.node.dataset.event = number; // all details are on the page
  }

  /** The calls around a call that are on the page, outermost first. @param {DetailedEvent} event */
  async callersOf(event) {
    const found = [];
    for (let at = Details.first(event.sources, "caller"); at !== null; ) {
      const call = await this.details.of(at);
      found.unshift(call);
      at = Details.first(call.sources, "caller");
    }
    return found;
  }

  clear() {
    this.asked++;
    this.event = null;
    this.arrows = [];
    this.node.hidden = true;
    delete this.node.dataset.event;
    this.timeline.redraw();
  }

  /**
   * Arrows of an event: its relations except to callees, plus relations of the launch call or operator in between.
   * @param {DetailedEvent} event
   * @returns {Promise<Arrow[]>}
   */
  async arrowsOf(event) {
    /** @type {[string, number, number][]} */
    const pairs = [];
    const add = (/** @type {string} */ kind, /** @type {number} */ from, /** @type {number} */ to) => from >= 0 && to >= 0 && pairs.length < ARROWS && pairs.push([kind, from, to]);
    for (const { kind, other } of event.sources) add(kind, other, event.number);
    for (const { kind, other } of event.targets) if (kind !== "caller") add(kind, event.number, other);
    const launch = event.gpu ? Details.first(event.sources, "launch") : null;
    if (launch !== null) {
      const { sources } = await this.details.of(launch);
      for (const { kind, other } of sources) if (kind === "caller") add(kind, other, launch);
    }
    const called = event.targets.filter(({ kind, other }) => kind === "caller" && other >= 0);
    for (const { other } of called.slice(0, ARROWS))
      for (const one of (await this.details.of(other)).targets)
        if (one.kind === "launch") {
          add("caller", event.number, other);
          add("launch", other, one.other);
        }
    const chained = pairs.some(([kind]) => kind === "launch"); // if true, the path goes through the launch call
    const drawn = pairs.filter(([kind]) => !(kind === "operator" && chained));
    return Promise.all(
      drawn.map(async ([kind, from, to]) => ({
        kind,
        from: await this.timeline.tiles.event(from),
        to: await this.timeline.tiles.event(to),
      })),
    );
  }

  /**
   * @param {DetailedEvent} event
   * @param {Texts} texts
   * @param {DetailedEvent | null} operator
   * @param {string[]} callers
   */
  panel(event, texts, operator, callers) {
    const { lanes, kinds } = this.timeline.data,
      lane = lanes[event.lane],
      address = `#event-${event.number}`,
      facts = [
        fact("ts", "Start", event.ts, exactMs(event.ts)),
        time("dur", event.gpu ? "Duration" : "Total time", event.dur),
        ...(event.gpu ? deviceFacts(event, texts, lane, operator, this.devices) : callFacts(event, texts)),
        ...(callers.length ? [fact("callers", "Call stack", callers, callers.join(" › "))] : []),
      ];
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) => el("button", { type: "button", title, onclick: act }, text);
    this.node.hidden = false;
    this.node.replaceChildren(
      el(
        "header",
        {},
        el("div", {}, swatch(kinds[event.kind].color), el("b", {}, kinds[event.kind].name), el("span", {}, lane.name)),
        el("h3", {}, el("code", { "data-key": "name" }, texts.names[event.name])),

        el(
          "div",
          { class: "tools" },
          button("Fill the view", "z", () => this.timeline.fill(event)),
          button("Events meanwhile", "m", () => this.timeline.span?.set(event.ts, event.ts + event.dur)),
          button("Close", "Esc", () => this.clear()),
          rowButton(event.gpu ? "kernel" : "call", texts.names[event.name], "In the table"),
          page.cameFrom ? button("Back", "Back to the row or finding (Backspace)", goBack) : null,
          el("a", { href: address, title: "Link to this event" }, address),
        ),
      ),
      el(
        "dl",
        {},
        facts.map(({ key, label, value, text }) =>
          el(
            "div",
            { class: text.length > LONG_FACT ? "long" : null },
            el("dt", {}, label),
            el(
              "dd",
              { "data-key": key, "data-value": JSON.stringify(value), title: `${label}: ${value}` },
              rowButton(key, value) ?? text,
            ),
          ),
        ),
      ),
      ...this.relations(event.sources, 0),
      ...this.relations(event.targets, 1),
    );
  }

  /**
   * Lists of related events by kind. Side 0 has the events before this event, and side 1 the events after it.
   * @param {Relation[]} related
   * @param {0 | 1} side
   */
  relations(related, side) {
    return Object.keys(RELATION_TEXTS)
      .map((kind) => {
        const others = related.filter((one) => one.kind === kind).map((one) => one.other);
        return others.length ? this.relation(kind, side, others) : null;
      })
      .filter(Boolean);
  }

  /** @param {string} kind @param {0 | 1} side @param {number[]} others */
  relation(kind, side, others) {
    const here = others.filter((other) => other >= 0),
      list = el("ul"),
      gone = others.length - here.length;
    const more = el("button", { type: "button" }, `Show all ${integers.format(here.length)}`);
    const fill = async (/** @type {number} */ end) => {
      const { names } = this.timeline.data;
      const events = await Promise.all(here.slice(0, end).map((other) => this.timeline.tiles.event(other)));
      list.replaceChildren(
        ...events.map((one) =>
          el(
            "li",
            {},
            el(
              "button",
              { type: "button", "data-event": one.number, onclick: () => this.select(one.number, { reveal: true }) },
              el("code", {}, short(names[one.name], 80)),
              el("span", {}, `${show(one.dur, "ns")} at ${show(one.ts, "ns")}`),
            ),
          ),
        ),
      );
    };
    more.addEventListener("click", () => {
      more.remove();
      fill(here.length);
    });
    fill(LISTED);
    return el(
      "div",
      { class: "relation", "data-relation": `${kind} ${side ? "out" : "in"}` },
      el("h4", {}, RELATION_TEXTS[kind][side], el("small", {}, kind)),
      list,
      here.length > LISTED ? more : null,
      gone ? el("p", { class: "none" }, `${integers.format(gone)} not on this page`) : null,
    );
  }

  /** Move an event into view; keep the zoom if the event is wide enough to see. @param {TimelineEvent} event */
  reveal(event) {
    const { timeline } = this,
      { ts, dur, lane, depth } = event,
      length = timeline.to - timeline.from,
      px = length / (timeline.canvas.clientWidth || 1000);
    if (depth >= (timeline.folded.get(lane) ?? Infinity)) {
      timeline.folded.delete(lane);
      timeline.refold();
    }
    if (dur < 4 * px || dur > length) timeline.show(ts - Math.max(200, 4 * dur), ts + Math.max(200, 5 * dur));
    else if (ts < timeline.from || ts + dur > timeline.to)
      timeline.show(ts + dur / 2 - length / 2, ts + dur / 2 + length / 2);
    const y = timeline.canvas.getBoundingClientRect().top + timeline.rowAt(event).y;
    if (y < 70 || y > innerHeight - 40) scrollBy({ top: y - innerHeight / 3, behavior: "instant" });
  }

  /** Number of the first unmerged event in the topmost visible lane with such an event; null if there is none. */
  firstInView() {
    const { timeline } = this;
    for (const [start, , , i, , , place] of timeline.visible()) {
      const { event } = timeline.at([0, 0, 0, i, 0, 0, place]);
      if (event !== null && start >= timeline.from) return event;
    }
    return null;
  }

  /** Follow a relation to its source if the event has one, or else to its target. @param {[string, 0 | 1][]} kinds */
  follow(...kinds) {
    if (!this.event) return;
    const { sources, targets } = this.event;
    for (const [kind, side] of kinds) {
      const found = Details.first(side ? targets : sources, kind);
      if (found !== null) return this.select(found, { reveal: true });
    }
  }

  /**
   * Go to the event next to the selected event in its row. If no event is selected, go to the first event in view.
   * @param {number} step
   */
  beside(step) {
    const { tiles } = this.timeline;
    const next = this.event ? this.event.number + step : this.firstInView();
    if (next === null || next < 0 || next >= tiles.size) return;
    if (!this.event) return this.select(next, { reveal: true });
    const { lane, depth } = tiles.placeOf(next);
    if (lane === this.event.lane && depth === this.event.depth) this.select(next, { reveal: true });
  }

  /** Action of a key; undefined for other keys. @param {string} key @returns {(() => unknown) | undefined} */
  act(key) {
    return {
      ArrowLeft: () => this.beside(-1),
      ArrowRight: () => this.beside(1),
      ArrowUp: () => this.follow(["launch", 0], ["operator", 0], ["caller", 0]),
      ArrowDown: () => this.follow(["launch", 1], ["caller", 1], ["operator", 1]),
      o: () => this.follow(["operator", 0], ["caller", 0]),
      l: () => this.follow(["launch", 0], ["caller", 1]),
      k: () => this.follow(["operator", 1], ["launch", 1]),
      b: () => this.follow(["forward", 1], ["forward", 0]),
      g: () => this.follow(["data", 0], ["event", 0], ["sync", 0], ["comm", 0], ["thread_handoff", 0], ["graph", 0]),
      h: () => this.follow(["data", 1], ["event", 1], ["sync", 1], ["comm", 1], ["thread_handoff", 1], ["graph", 1]),
      z: () => this.event && this.timeline.fill(this.event),
      m: () => this.event && this.timeline.span?.set(this.event.ts, this.event.ts + this.event.dur),
      Enter: () => (this.event ? this.node.focus() : this.beside(0)),
      Escape: () => this.clear(),
    }[key];
  }
}

/** Select the event in the address of the page: report.html#event-123. */
export function selectFromAddress() {
  const number = Number(/^#event-(\d+)$/.exec(location.hash)?.[1] ?? NaN);
  const { timeline } = page;
  if (timeline?.inspector && number < timeline.tiles.size) timeline.inspector.select(number, { reveal: true });
}
