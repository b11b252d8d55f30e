/* What is drawn over the calls of the timeline: the selected event and span, its arrows, the critical path. */

const PATH_STRIP = 10; // px above the lanes
const LEAST_ELEMENT_PX = 1.5;

/** Series of the timeline's chart that draws over the calls; `timeline.overlays` has what. */
function overlaySeries(timeline) {
  return {
    id: "overlay",
    type: "custom",
    clip: true,
    silent: true,
    z: 5,
    progressive: 0,
    encode: { x: [0, 1], y: -1 },
    tooltip: { show: false },
    renderItem: (params, api) => timeline.overlays[params.dataIndex]?.draw(api) ?? null,
    data: overlayData(timeline),
  };
}

/** Data of that series: from, to of each thing that is drawn. */
function overlayData(timeline) {
  timeline.overlays = [...spanOf(timeline), ...pathOf(timeline), ...arrowsOf(timeline), ...selectedOf(timeline)];
  return timeline.overlays.map(({ from, to }) => [from, to]);
}

const at = (api, time) => api.coord([time, 0])[0];

/** A rectangle from one time to another, `out` px larger on all sides. */
function boxed(from, to, y, height, style, out = 0) {
  const draw = (api) => {
    const x = at(api, from) - out,
      width = Math.max(1 + 2 * out, at(api, to) - x + out);
    return { type: "rect", shape: { x, y: y - out, width, height: height + 2 * out, r: 2 * out }, style };
  };
  return { from, to, draw };
}

function* selectedOf(timeline) {
  const event = timeline.inspector?.event;
  if (!event) return;
  const { y, tall } = timeline.rowAt(event),
    style = { fill: "transparent", stroke: Theme.value("text"), lineWidth: 2 };
  yield boxed(event.ts, event.ts + event.dur, y, tall, style, 1);
}

function* spanOf(timeline) {
  const { from, to } = timeline.span ?? {};
  if (from === null || from === undefined) return;
  const colour = Theme.value("accent");
  yield boxed(from, to, AXIS, timeline.height, { fill: colour, opacity: 0.14, stroke: colour, lineWidth: 1 });
}

/** Arrows from the end of what comes first to where what follows begins; from a caller, to where its callee begins. */
function* arrowsOf(timeline) {
  for (const { kind, from, to } of timeline.inspector?.arrows ?? []) {
    const start = timeline.rowAt(from),
      end = timeline.rowAt(to),
      inside = kind === "caller" || kind === "operator"; // the callee runs while its caller does
    const leaves = inside ? to.ts : from.ts + from.dur,
      colour = ARROW_COLOURS[kind] ?? 9;
    yield {
      from: Math.min(leaves, to.ts),
      to: Math.max(leaves, to.ts),
      draw: (api) => {
        const y0 = start.y + start.tall / 2;
        return inside
          ? drop(at(api, to.ts), y0, start.y < end.y ? end.y : end.y + end.tall, Theme.colour(colour))
          : arrow(at(api, leaves), y0, at(api, to.ts), end.y + end.tall / 2, Theme.colour(colour));
      },
    };
  }
}

/** A straight arrow down or up to a row. */
function drop(x, y0, y1, colour) {
  const back = y1 > y0 ? -ARROW_HEAD : ARROW_HEAD,
    half = ARROW_HEAD / 2 + 1;
  const line = {
    type: "line",
    shape: { x1: x + 2, y1: y0, x2: x + 2, y2: y1 + back },
    style: { stroke: colour, lineWidth: 1.6 },
  };
  return withHead(line, [[x + 2, y1 + 2], [x + 2 - half, y1 + back], [x + 2 + half, y1 + back]], colour);
}

function arrow(x0, y0, x1, y1, colour) {
  const bend = Math.max(18, Math.min(90, Math.abs(x1 - x0) / 3)),
    head = ARROW_HEAD;
  const line = {
    type: "bezierCurve",
    shape: { x1: x0, y1: y0, x2: x1 - head, y2: y1, cpx1: x0 + bend, cpy1: y0, cpx2: x1 - head - bend, cpy2: y1 },
    style: { fill: "none", stroke: colour, lineWidth: 1.6, opacity: 0.9 },
  };
  const back = x1 - head - 1,
    half = head / 2 + 1;
  return withHead(line, [[x1, y1], [back, y1 - half], [back, y1 + half]], colour);
}

function withHead(line, points, colour) {
  return { type: "group", children: [line, { type: "polygon", shape: { points }, style: { fill: colour } }] };
}

/** The strip, its elements as wide as a pixel at least, and the chain of those that can be seen. */
function* pathOf(timeline) {
  const { critical, from, to } = timeline;
  if (!critical?.size || !critical.shown) return;
  const px = (to - from) / Math.max(200, timeline.canvas.clientWidth || 1000);
  let strip = null,
    last = null;
  for (const element of critical.within(from, to)) {
    const end = element.ts + element.dur,
      colour = critical.colour(element.kind);
    if (strip && (strip.colour === colour || end - strip.from < px)) strip.to = Math.max(strip.to, end);
    else {
      if (strip) yield piece(strip);
      strip = { from: element.ts, to: end, colour };
    }
    if (!critical.isWork(element.kind)) continue; // a wait: the joint of what is before and after it
    if (element.event < 0 || element.dur < LEAST_ELEMENT_PX * px) {
      last = null;
      continue;
    }
    const here = { ...element, ...timeline.rowAt(timeline.tiles.placeOf(element.event)), colour };
    yield bar(here, element.number === critical.at);
    if (last) yield joint(last, here);
    last = here;
  }
  if (strip) yield piece(strip);
}

function piece({ from, to, colour }) {
  return boxed(from, to, AXIS + 1, PATH_STRIP - 4, { fill: fillOf(colour) });
}

function bar({ ts, dur, y, tall }, current) {
  const height = current ? 5 : 3;
  return boxed(ts, ts + dur, y + tall - height, height, { fill: Theme.value("path") });
}

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
