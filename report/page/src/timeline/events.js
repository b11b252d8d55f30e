/* Events of a place in the timeline, and a walk through them. */

import { integers } from "../units.js";

const MOST_CHECKED = 400; // maximum number of events to compare in detail in a loop

/**
 * A place in the timeline; the timeline shows the longest event there:
 * - `event`: number of an event; or `from` and `to`, ns: a time span;
 * - `gpu` (GPU events or CPU calls), `device`, `stream`: lane of the event;
 * - `name`: full name, or `codes`: name codes of the page; `op`: the topmost operator that
 *   launched the event;
 * - `has`: a test of the columns of `Details`, (columns, at, texts, name) => boolean;
 * - `fits`: a test of all details, async (event, texts) => boolean, called for the longest events;
 * - `gap`: show the longest gap between the events of the lane instead;
 * - `orElse`: another place, if there is no such event.
 */
/**
 * Events of a place in order of time, [{number, ts, dur}], only in the shown step if there is one.
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
 * Number of the longest event, or of the longest event that passes `fits`.
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

/** The longest gap between some events, {from, to}. @param {{ts: number, dur: number}[]} found */
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
   * `numbers`: event numbers; `at`: position of the shown event, −1 for none.
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
