/* Events of a place in the timeline, and a walk through them. */

import { integers } from "../units.js";

const MOST_CHECKED = 400; // events whose details are compared one by one

/**
 * A place in the timeline, of which the longest event is shown:
 * - `event`: the number of one; or `from` and `to`, ns: a span of time;
 * - `gpu` (events of devices or calls of the host), `device`, `stream`: its lane;
 * - `name`: its full name, or `codes`, names by their place in the page's list; `op`: the topmost operator that
 *   launched it;
 * - `has`: what its columns of `Details` say, (columns, at, texts, name) => boolean;
 * - `fits`: what all that is known of it says, async (event, texts) => boolean, asked of the longest ones;
 * - `gap`: the longest time between events of its lane instead;
 * - `orElse`: another place, where there is no such event.
 */
/**
 * Events of a place in order of time, [{number, ts, dur}]; of the step that the page is of, if any.
 * @param {Timeline} timeline
 * @param {Place} place
 * @returns {Promise<Found[]>}
 */
export async function eventsOf(timeline, { gpu, device, stream, name, codes, op, has }) {
  const { tiles, details, step, data } = timeline,
    texts = await details.texts(),
    wanted = codes ?? (name === undefined ? null : codesOf(texts.names, name)),
    launched = op ? codesOf(texts.names, op) : null,
    /** @type {Found[]} */ found = [];
  for (let tile = 0; tile < tiles.first.length; tile++) {
    const lane = data.lanes[tiles.tiles.lane[tile]];
    if (gpu !== undefined && lane.gpu !== gpu) continue;
    if (stream !== undefined && lane.stream !== stream) continue;
    if (device !== undefined && lane.device !== device) continue;
    const columns = tiles.decoded.get(tile) ?? (await tiles.decode(tile)),
      detail = has || step ? (await details.tile(tile)).columns : {};
    for (let i = 0; i < columns.count; i++) {
      if (wanted && !wanted.has(columns.name[i])) continue;
      if (launched && !launched.has(columns.op[i])) continue;
      if (step && detail.step[i] !== step.number) continue;
      if (has && !has(detail, i, texts, columns.name[i])) continue;
      found.push({ number: columns.first + i, ts: columns.ts[i], dur: columns.dur[i] });
    }
  }
  return found.sort((a, b) => a.ts - b.ts || a.number - b.number);
}

/** @param {string[]} names @param {string} name */
const codesOf = (names, name) => new Set(names.flatMap((one, i) => (one === name ? [i] : [])));

/**
 * Number of the longest of some events; with `fits` of those that do.
 * @param {Timeline} timeline
 * @param {Found[]} found
 * @param {Place["fits"]} [fits]
 */
export async function longestOf(timeline, found, fits) {
  const ordered = found.slice().sort((a, b) => b.dur - a.dur || a.ts - b.ts);
  if (!fits) return ordered[0]?.number ?? null;
  const { details } = timeline,
    texts = await details.texts();
  for (const { number } of ordered.slice(0, MOST_CHECKED))
    if (await fits(await details.of(number), texts)) return number;
  return null;
}

/** The longest gap of some events, {from, to}. @param {{ts: number, dur: number}[]} found */
export function longestGap(found) {
  let best = null,
    reach = found[0]?.ts;
  for (const { ts, dur } of found) {
    if (ts - reach > (best ? best.to - best.from : 0)) best = { from: reach, to: ts };
    reach = Math.max(reach, ts + dur);
  }
  return best;
}

/** Events to go through in order of time. */
export class Hits {
  /**
   * `numbers`: of the events; `at`: place of the one that is shown, −1 for none.
   * @param {Timeline} timeline
   * @param {number[]} numbers
   * @param {number} at
   */
  constructor(timeline, numbers, at = -1) {
    this.timeline = timeline;
    this.numbers = numbers;
    this.at = at;
  }

  get text() {
    return this.numbers.length ? `${integers.format(this.at + 1)} of ${integers.format(this.numbers.length)}` : "none here";
  }

  /** @param {number} by */
  async step(by) {
    const count = this.numbers.length;
    if (!count) return;
    this.at = this.at < 0 && by < 0 ? count - 1 : (this.at + by + count) % count;
    await this.timeline.inspector?.select(this.numbers[this.at], { reveal: true });
  }
}
