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

function* selectedOf(timeline) {
  const event = timeline.inspector?.event;
  if (!event) return;
  const { y, tall } = timeline.rowAt(event);
  yield {
    from: event.ts,
    to: event.ts + event.dur,
    draw: (api) => {
      const x = at(api, event.ts) - 1,
        width = Math.max(3, at(api, event.ts + event.dur) - x + 1);
      return {
        type: "rect",
        shape: { x, y: y - 1, width, height: tall + 2, r: 2 },
        style: { fill: "transparent", stroke: Theme.value("text"), lineWidth: 2 },
      };
    },
  };
}

function* spanOf(timeline) {
  const { from, to } = timeline.span ?? {};
  if (from === null || from === undefined) return;
  yield {
    from,
    to,
    draw: (api) => {
      const x = at(api, from);
      return {
        type: "rect",
        shape: { x, y: AXIS, width: Math.max(1, at(api, to) - x), height: timeline.height },
        style: { fill: Theme.value("accent"), opacity: 0.14, stroke: Theme.value("accent"), lineWidth: 1 },
      };
    },
  };
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
  return {
    type: "group",
    children: [
      {
        type: "line",
        shape: { x1: x + 2, y1: y0, x2: x + 2, y2: y1 + back },
        style: { stroke: colour, lineWidth: 1.6 },
      },
      {
        type: "polygon",
        shape: { points: [[x + 2, y1 + 2], [x + 2 - half, y1 + back], [x + 2 + half, y1 + back]] },
        style: { fill: colour },
      },
    ],
  };
}

function arrow(x0, y0, x1, y1, colour) {
  const bend = Math.max(18, Math.min(90, Math.abs(x1 - x0) / 3)),
    head = ARROW_HEAD;
  return {
    type: "group",
    children: [
      {
        type: "bezierCurve",
        shape: { x1: x0, y1: y0, x2: x1 - head, y2: y1, cpx1: x0 + bend, cpy1: y0, cpx2: x1 - head - bend, cpy2: y1 },
        style: { fill: "none", stroke: colour, lineWidth: 1.6, opacity: 0.9 },
      },
      {
        type: "polygon",
        shape: { points: [[x1, y1], [x1 - head - 1, y1 - head / 2 - 1], [x1 - head - 1, y1 + head / 2 + 1]] },
        style: { fill: colour },
      },
    ],
  };
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
  return {
    from,
    to,
    draw: (api) => {
      const x = at(api, from);
      return {
        type: "rect",
        shape: { x, y: AXIS + 1, width: Math.max(1, at(api, to) - x), height: PATH_STRIP - 4 },
        style: { fill: Theme.colour(colour) },
      };
    },
  };
}

function bar({ ts, dur, y, tall }, current) {
  return {
    from: ts,
    to: ts + dur,
    draw: (api) => {
      const x = at(api, ts),
        height = current ? 5 : 3;
      return {
        type: "rect",
        shape: { x, y: y + tall - height, width: Math.max(1, at(api, ts + dur) - x), height },
        style: { fill: Theme.value("path") },
      };
    },
  };
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
