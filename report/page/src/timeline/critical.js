/* The critical path on the timeline: a strip of its elements, a chain through its events, and a walk along it. */

import { el } from "../dom.js";
import { tile } from "../layout.js";
import { integers, show } from "../units.js";
import { firstEnding } from "./blocks.js";
import { NO_TILES, Tiles } from "./tiles.js";

export const PATH_STRIP = 10; // height in px, above the lanes

/** @type {Record<string, number>} */
export const PATH_COLORS = { "host work": 0, "GPU work": 4, collective: 2 };

const PATH_WAIT = 1;
const MOST_PATH_TILES = 24; // if the view has more tiles, elements are not drawn separately

/** @type {PathData} */
const NO_PATH = { kinds: [], work: [], main: [], makespan_ns: 0, shown_ns: 0, tiles: NO_TILES };

export class CriticalPath {
  /** @param {PathData | null} path @param {Timeline} timeline */
  constructor(path, timeline) {
    this.path = path ?? NO_PATH;
    this.timeline = timeline;
    this.shown = true;
    this.walking = false;
    /** @type {number | null} */
    this.at = null; // the number of the current element; null after the user selects another event
    this.tiles = new Tiles(this.path.tiles, () => timeline.redraw());
    this.node = el("div", { class: "picked", id: "path-said", "aria-live": "polite" });
    if (path) this.say(null);
  }

  get size() {
    return this.tiles.size;
  }

  /** @param {number} kind */
  isWork(kind) {
    return this.path.work.includes(kind);
  }

  /** @param {number} kind */
  color(kind) {
    return PATH_COLORS[this.path.kinds[kind]] ?? PATH_WAIT;
  }

  /**
   * Elements in the view, empty while tiles are decoded; if there are too many, the main kind of each tile.
   * @param {number} from
   * @param {number} to
   */
  *within(from, to) {
    const wanted = [...this.tiles.within(0, 0, from, to)];
    if (wanted.length > MOST_PATH_TILES) {
      for (const i of wanted) {
        const ts = this.path.tiles.from[i];
        yield { number: -1, ts, dur: this.path.tiles.to[i] - ts, kind: this.path.main[i], event: -1 };
      }
      return;
    }
    const tiles = this.tiles.of([{ lane: 0, depth: 0 }], from, to)?.[0] ?? [];
    for (const tile of tiles)
      for (let i = firstEnding(tile.ts, tile.dur, 0, tile.count, from); i < tile.count && tile.ts[i] <= to; i++)
        yield { number: tile.first + i, ts: tile.ts[i], dur: tile.dur[i], kind: tile.kind[i], event: tile.event[i] };
  }

  /** Go to the next or previous element, at first from the selected event. @param {number} step */
  async walk(step) {
    const { from, inspector } = this.timeline;
    if (!this.size || !inspector || this.walking) return;
    this.walking = true;
    const
      begin = inspector.event ? inspector.event.ts : from;
    const next = Math.max(0, Math.min(this.size - 1, this.at === null ? await this.atTime(begin) : this.at + step));
    const element = /** @type {PathElement & TimelineEvent} */ (await this.tiles.event(next));
    this.shown = true;
    this.walking = false;
    this.say(element);
    if (element.event >= 0) await inspector.select(element.event);
    this.at = next;
    this.walking = false;
    const place = element.event >= 0 ? this.timeline.tiles.placeOf(element.event) : { lane: 0, depth: 0 };
    inspector.reveal({ ...element, ...place });
    this.timeline.redraw();
    this.node.dataset.element = next;
  }

  /** Number of the first element that ends at a time or later. @param {number} time */
  async atTime(time) {
    const { to, from } = this.path.tiles,
      tile = Math.min(to.findIndex((end) => end >= time) >>> 0, from.length - 1),
      { ts, dur, count, first } = await this.tiles.decode(tile);
    return first + firstEnding(ts, dur, 0, count, time);
  }

  toggle() {
    this.shown = !this.shown;
    this.timeline.redraw();
  }

  /** @param {PathElement | null} element */
  say(element) {
    const { makespan_ns, shown_ns, kinds } = this.path,
      total = show(makespan_ns, "ns"),
      count = integers.format(this.size),
      part = shown_ns === makespan_ns ? "" : ` (${show(shown_ns, "ns")} on this page)`;
    this.node.textContent = element
      ? `Critical path, element ${integers.format(element.number + 1)} of ${count}: ` +
        `${kinds[element.kind]}, ${show(element.ns, "ns")} of ${total}`
      : `Critical path: ${count} elements, ${total} according to the replay${part}; press n or p to follow it, c to hide it`;
    this.node.dataset.ns = String(element?.ns ?? "");
  }
}
