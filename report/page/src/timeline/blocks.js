/* Helpers for drawing the timeline: rows of blocks and their heights, the strip above, and a search by time. */

import { Theme } from "../theme.js";

export const AXIS = 50;
export const FOOT = 12;
export const CPU_ROW = 16;
export const GPU_ROW = 22;
export const LANE_GAP = 7;
export const LEAST_VIEW_NS = 50;

/**
 * Runs of blocks with the same lane and depth; blocks are sorted by lane, depth and start.
 * @param {{lane: number[], depth: number[], ts: number[]}} blocks
 * @returns {LaneRow[]}
 */
export function rowsOf({ lane, depth, ts }) {
  const rows = [];
  for (let i = 0; i < ts.length; i++) {
    const last = rows[rows.length - 1];
    if (last && last.lane === lane[i] && last.depth === depth[i]) last.end = i + 1;
    else rows.push({ lane: lane[i], depth: depth[i], begin: i, end: i + 1 });
  }
  return rows;
}

/** The zoom strip above the timeline, and moving by dragging. @param {number} startValue @param {number} endValue */
export function zoomOf(startValue, endValue) {
  return [
    {
      type: "inside",
      filterMode: "none",
      zoomLock: true, // only move the view: if zooming were on, the page would not receive wheel events
      startValue,
      endValue,
      minValueSpan: LEAST_VIEW_NS,
    },
    {
      type: "slider",
      filterMode: "none",
      top: 2,
      height: 22,
      left: 4,
      right: 4,
      startValue,
      endValue,
      brushSelect: false,
      showDetail: false,
      borderColor: "transparent",
      backgroundColor: Theme.value("sunk"),
      fillerColor: `${Theme.color(0)}33`,
      dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { color: Theme.value("faint"), opacity: 0.6 } },
      selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { color: Theme.color(0), opacity: 0.8 } },
      handleStyle: { borderColor: Theme.color(0), color: Theme.value("card") },
      moveHandleSize: 0,
    },
  ];
}

/** The number of each block's first event. Blocks are in the order of events. @param {number[]} count */
export function numbersOf(count) {
  let next = 0;
  return count.map((events) => (next += events) - events);
}

/**
 * The first block of a row that ends after a given time. Ends ascend within a row.
 * @param {Numbers} ts
 * @param {Numbers} dur
 * @param {number} low
 * @param {number} high
 * @param {number} time
 */
export function firstEnding(ts, dur, low, high, time) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ts[middle] + dur[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
