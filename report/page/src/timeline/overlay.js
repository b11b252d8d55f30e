/* Drawings over the calls of the timeline: the selected event and span, arrows, and the critical path. */

import { fillOf, Theme } from "../theme.js";
import { AXIS } from "./blocks.js";
import { PATH_STRIP } from "./critical.js";

const ARROW_HEAD = 6;

/** @type {Record<string, number>} */
const ARROW_COLORS = { caller: 9, operator: 4, launch: 4, forward: 5, data: 3, comm: 2, sync: 1, event: 1 };

const LEAST_ELEMENT_PX = 1.5;

/**
 * Chart series that draws `timeline.overlays` over the calls.
 * @param {Timeline} timeline
 */
export function overlaySeries(timeline) {
  return {
    id: "overlay",
    type: "custom",
    clip: true,
    silent: true,
    z: 5,
    progressive: 0,
    encode: { x: [0, 1], y: -1 },
    tooltip: { show: false },
    renderItem: (/** @type {any} */ params, /** @type {any} */ api) => timeline.overlays[params.dataIndex]?.draw(api) ?? null,
    data: overlayData(timeline),
  };
}

/** Data of the overlay series: start and end of each shape. @param {Timeline} timeline */
export function overlayData(timeline) {
  timeline.overlays = [...spanOf(timeline), ...pathOf(timeline), ...arrowsOf(timeline), ...selectedOf(timeline)];
  return timeline.overlays.map(({ from, to }) => [from, to]);
}

/** @param {any} api @param {number} time */
export const at = (api, time) => api.coord([time, 0])[0];

/**
 * A rectangle between two times, `out` px larger on all sides.
 * @param {number} from
 * @param {number} to
 * @param {number} y
 * @param {number} height
 * @param {object} style
 * @param {number} out
 */
function boxed(from, to, y, height, style, out = 0) {
  const draw = (/** @type {any} */ api) => {
    const x = at(api, from) - out,
      width = Math.max(1 + 2 * out, at(api, to) - x + out);
    return { type: "rect", shape: { x, y: y - out, width, height: height + 2 * out, r: 2 * out }, style };
  };
  return { from, to, draw };
}

/** @param {Timeline} timeline @returns {Generator<Overlay>} */
function* selectedOf(timeline) {
  const event = timeline.inspector?.event;
  if (!event) return;
  const { y, tall } = timeline.rowAt(event),
    style = { fill: "transparent", stroke: Theme.value("text"), lineWidth: 2 };
  yield boxed(event.ts, event.ts + event.dur, y, tall, style, 1);
}

/** @param {Timeline} timeline @returns {Generator<Overlay>} */
function* spanOf(timeline) {
  const selected = timeline.span?.selected,
    color = Theme.value("accent");
  if (selected) yield boxed(selected.from, selected.to, AXIS, timeline.height, { fill: color, opacity: 0.14, stroke: color, lineWidth: 1 });
}

/**
 * Arrows from the end of an event to the start of the next event, or from a caller to the start of its callee.
 * @param {Timeline} timeline
 * @returns {Generator<Overlay>}
 */
export function* arrowsOf(timeline) {
  for (const { kind, from, to } of timeline.inspector?.arrows ?? []) {
    const start = timeline.rowAt(from),
      end = timeline.rowAt(to),
      inside = kind === "caller" || kind === "operator"; // the callee runs during its caller
    const leaves = inside ? to.ts : from.ts + from.dur,
      color = ARROW_COLORS[kind] ?? 9;
    yield {
      from: Math.min(leaves, to.ts),
      to: Math.max(leaves, to.ts),
      draw: (api) => {
        const y0 = start.y + start.tall / 2;
        return inside
          ? drop(at(api, to.ts), y0, start.y < end.y ? end.y : end.y + end.tall, Theme.color(color))
          : arrow(at(api, leaves), y0, at(api, to.ts), end.y + end.tall / 2, Theme.color(color));
      },
    };
  }
}

/**
 * A straight arrow down or up to a row.
 * @param {number} x
 * @param {number} y0
 * @param {number} y1
 * @param {string} color
 */
function drop(x, y0, y1, color) {
  const back = y1 > y0 ? -ARROW_HEAD : ARROW_HEAD,
    half = ARROW_HEAD / 2 + 1;
  const line = {
    type: "line",
    shape: { x1: x + 2, y1: y0, x2: x + 2, y2: y1 + back },
    style: { stroke: color, lineWidth: 1.6 },
  };
  return withHead(line, [[x + 2, y1 + 2], [x + 2 - half, y1 + back], [x + 2 + half, y1 + back]], color);
}

/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @param {string} color */
export function arrow(x0, y0, x1, y1, color) {
  const bend = Math.max(18, Math.min(90, Math.abs(x1 - x0) / 3)),
    head = ARROW_HEAD;
  const line = {
    type: "bezierCurve",
    shape: { x1: x0, y1: y0, x2: x1 - head, y2: y1, cpx1: x0 + bend, cpy1: y0, cpx2: x1 - head - bend, cpy2: y1 },
    style: { fill: "none", stroke: color, lineWidth: 1.6, opacity: 0.9 },
  };
  const back = x1 - head - 1,
    half = head / 2 + 1;
  return withHead(line, [[x1, y1], [back, y1 - half], [back, y1 + half]], color);
}

/** @param {object} line @param {number[][]} points @param {string} color */
function withHead(line, points, color) {
  return { type: "group", children: [line, { type: "polygon", shape: { points }, style: { fill: color } }] };
}

/**
 * The strip, in which every element is at least one pixel wide, and the chain of visible elements.
 * @param {Timeline} timeline
 * @returns {Generator<Overlay>}
 */
function* pathOf(timeline) {
  const { critical, from, to } = timeline;
  if (!critical?.size || !critical.shown) return;
  const px = (to - from) / Math.max(200, timeline.canvas.clientWidth || 1000);
  let strip = null,
    last = null;
  for (const element of critical.within(from, to)) {
    const end = element.ts + element.dur,
      color = critical.color(element.kind);
    if (strip && (strip.color === color || end - strip.from < px)) strip.to = Math.max(strip.to, end);
    else {
      if (strip) yield piece(strip);
      strip = { from: element.ts, to: end, color };
    }
    if (!critical.isWork(element.kind)) continue; // a wait only links the elements before and after it
    if (element.event < 0 || element.dur < LEAST_ELEMENT_PX * px) {
      last = null;
      continue;
    }
    const here = { ...element, ...timeline.rowAt(timeline.tiles.placeOf(element.event)), color };
    yield bar(here, element.number === critical.at);
    if (last) yield joint(last, here);
    last = here;
  }
  if (strip) yield piece(strip);
}

/** @param {{from: number, to: number, color: number}} strip */
function piece({ from, to, color }) {
  return boxed(from, to, AXIS + 1, PATH_STRIP - 4, { fill: fillOf(color) });
}

/** @param {PathElement & {y: number, tall: number}} element @param {boolean} current */
export function bar({ ts, dur, y, tall }, current) {
  const height = current ? 5 : 3;
  return boxed(ts, ts + dur, y + tall - height, height, { fill: Theme.value("path") });
}

/**
 * @param {PathElement & {y: number, tall: number}} one
 * @param {PathElement & {y: number, tall: number}} other
 * @returns {Overlay}
 */
function joint(one, other) {
  const x0 = one.ts + one.dur,
    from = Math.min(x0, other.ts);
  return {
    from,
    to: Math.max(x0, other.ts),
    draw: (api) => ({
      type: "line",
      shape: { x1: at(api, x0), y1: one.y + one.tall - 1, x2: at(api, other.ts), y2: other.y + other.tall - 1 },
      style: { stroke: Theme.value("path"), lineWidth: 1.5, lineDash: [3, 2] },
    }),
  };
}
