/* The search of the timeline: names, source lines and modules; Enter goes from call to call. */

import { swatch } from "../chart.js";
import { el, small, stepped } from "../dom.js";
import { fits, short } from "../names.js";
import { integers, numberOf, show } from "../units.js";
import { eventsOf, Hits } from "./events.js";

const FOUND_SHOWN = 60;

export class TimelineSearch {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.input = el("input", {
      type: "search",
      id: "search",
      placeholder: "Search calls and kernels…",
      "aria-label": "Search the timeline",
      title: "Enter, Shift + Enter: next, previous call; ↓ ↑: next, previous name",
    });
    this.said = el("span", { class: "said", id: "search-said", role: "status" });
    this.list = el("div", { class: "found", hidden: true });
    this.node = el("div", { class: "searching" }, this.input, this.list);
    /** List entries: names, then places. @type {(FoundName & FoundPlace)[]} */
    this.rows = [];
    this.at = -1; // index of the current hit in the list
    this.input.addEventListener("input", () => this.find(this.input.value));
    this.input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    document.addEventListener("click", (event) => {
      if (!this.node.contains(event.target)) this.list.hidden = true;
    });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") {
      this.input.value = "";
      this.find("");
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key !== "Home" && event.key !== "End") {
      stepped(event, this.at, this.rows.length, (at) => this.choose(at));
    }
  }

  /** Highlight matching calls, dim the others, and list the names. @param {string} text */
  find(text) {
    const { timeline } = this,
      { names, found, places, kinds } = timeline.data,
      wanted = text.trim().toLowerCase();
    const matches = new Set(wanted ? names.flatMap((name, i) => (fits(name, wanted) ? [i] : [])) : []);
    timeline.matches = wanted ? matches : null;
    timeline.hits = null;
    const hits = wanted ? found.filter((one) => matches.has(one.name)) : [],
      lines = wanted ? places.filter((one) => one.text.toLowerCase().includes(wanted)) : [];
    this.rows = /** @type {any[]} */ ([...hits.slice(0, FOUND_SHOWN), ...lines.slice(0, FOUND_SHOWN)]);
    this.at = -1;
    this.list.hidden = !this.rows.length;
    this.list.replaceChildren(
      ...this.rows.map((one, at) =>
        el(
          "button",
          { type: "button", tabindex: -1, "data-place": one.text, onclick: () => this.choose(at, true) },
          one.text ? small(one.what) : swatch(kinds[one.kind].color),
          el("code", {}, short(one.text ?? names[one.name], 120)),
          el("span", {}, `${integers.format(one.count)} ×`),
          el("span", {}, show(one.total, "ns")),
        ),
      ),
    );
    this.said.textContent = !wanted
      ? ""
      : hits.length
        ? `${numberOf(hits.reduce((sum, one) => sum + one.count, 0), "call")} of ${numberOf(hits.length, "name")}`
        : lines.length
          ? `${integers.format(lines.length)} lines and modules`
          : "nothing found";
    timeline.redraw();
  }

  /** Go to the longest call of a name, or the longest event of a source line or module. @param {number} at */
  choose(at, done = false) {
    const { timeline } = this,
      one = this.rows[at];
    this.at = at;
    [...this.list.children].forEach((node, i) => node.classList.toggle("at", i === at));
    this.list.children[at].scrollIntoView({ block: "nearest" });
    this.list.hidden = done;
    timeline.hits = null;
    const room = Math.max(one.dur * 3, 200);
    timeline.show(one.ts - room, one.ts + one.dur + room);
    if (one.text) return;
    timeline.matches = new Set([one.name]);
    timeline.say(one.name, [
      timeline.data.kinds[one.kind].name,
      `${numberOf(one.count, "call")}, ${show(one.total, "ns")}`,
      `longest ${show(one.dur, "ns")} at ${show(one.ts, "ns")}`,
    ]);
    timeline.redraw();
  }

  /**
   * Go to the next or previous hit: a call of the name chosen in the list, or any hit if no name is chosen.
   * @param {number} by
   */
  async step(by) {
    const { timeline, rows } = this;
    if (!rows.length) return;
    if (!timeline.matches?.size || rows[this.at]?.text || !timeline.inspector)
      return this.choose((Math.max(this.at, by < 0 ? 0 : -1) + by + rows.length) % rows.length);
    this.list.hidden = true;
    timeline.hits ??= new Hits(timeline, (await eventsOf(timeline, { codes: timeline.matches })).map((one) => one.number));
    await timeline.hits.step(by);
    this.said.textContent = timeline.hits.text;
  }
}
