/* The calls in view on the timeline; calls too short to see are merged with their neighbors. */

import { CPU_ROW, firstEnding, GPU_ROW, LANE_GAP } from "./blocks.js";

/** Width below which calls are invisible, px. */
export const LEAST_PX = 1.5;
const MERGED_PX = 6; // maximum width of a block of merged calls

/**
 * Calls in the view, [start, end, y, place in its source, row height, busy part, source]; calls too short to see are
 * merged with their neighbors into a block with the color of the longest call; pale blocks contain much idle time.
 *
 * If merged blocks are too coarse for the view, calls come from the tiles as soon as the tiles are decoded.
 * @param {Timeline} timeline
 */
export function visibleCalls(timeline) {
  const px = (timeline.to - timeline.from) / Math.max(200, timeline.canvas.clientWidth || 1000);
  const rows = timeline.rows.filter(({ lane, depth }) => depth < (timeline.folded.get(lane) ?? Infinity));
  const close = LEAST_PX * px < timeline.data.resolution;
  const fine = close ? timeline.tiles.of(rows, timeline.from, timeline.to) : null;
  /** @type {number[][]} */
  const out = [];
  timeline.sources = [timeline.data];
  const complete = !close || Boolean(fine?.every((tiles) => tiles !== null));
  rows.forEach(({ lane, depth, begin, end }, row) => {
    const tall = timeline.data.lanes[lane].gpu ? GPU_ROW : CPU_ROW;
    const y = timeline.tops[lane] + depth * tall + LANE_GAP / 2;
    if (!fine?.[row]) return gather(timeline, out, 0, begin, end, px, y, tall - 1);
    for (const tile of fine[row]) {
      timeline.sources.push(tile);
      gather(timeline, out, timeline.sources.length - 1, 0, tile.count, px, y, tall - 1);
    }
  });
  timeline.node.dataset.complete = complete ? "yes" : "no"; // "yes": tiles are drawn as finely as the screen can show
  return out;
}

/**
 * Add the calls of a row of a source that are in the view.
 * @param {Timeline} timeline
 * @param {number[][]} out
 * @param {number} place
 * @param {number} begin
 * @param {number} end
 * @param {number} px
 * @param {number} y
 * @param {number} tall
 */
function gather(timeline, out, place, begin, end, px, y, tall) {
  const source = timeline.sources[place],
    { ts, dur, name } = source,
    busy = place ? dur : source.busy;
  const least = LEAST_PX * px;
  for (let i = firstEnding(ts, dur, begin, end, timeline.from); i < end && ts[i] <= timeline.to; i++) {
    const start = ts[i];
    const wanted = timeline.matches?.has(name[i]);
    let stop = start + dur[i];
    let longest = i;
    let sum = busy[i];
    while (
      dur[i] < least &&
      i + 1 < end &&
      dur[i + 1] < least &&
      ts[i + 1] - stop < least &&
      ts[i + 1] + dur[i + 1] - start < MERGED_PX * px &&
      timeline.matches?.has(name[i + 1]) === wanted
    ) {
      i++;
      stop = ts[i] + dur[i];
      sum += busy[i];
      if (dur[i] > dur[longest]) longest = i;
    }
    out.push([start, stop, y, longest, tall, Math.min(1, sum / Math.max(1, stop - start)), place]);
  }
}
