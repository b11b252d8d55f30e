/* All events of the timeline in compressed tiles, which are decoded where the view needs them. */

import { unpackColumns } from "../packed.js";

const MOST_TILES = 400; // maximum number of tiles that a view may request; if it needs more, merged blocks are drawn
const KEPT_TILES = 600;

/** @type {TileData} */
export const NO_TILES = { fields: [], lane: [], depth: [], from: [], to: [], count: [], data: [] };

export class Tiles {
  /**
   * `changed` is called when the requested tiles are decoded.
   * @param {TileData | null} tiles
   * @param {() => void} changed
   */
  constructor(tiles, changed) {
    this.tiles = tiles ?? NO_TILES;
    this.changed = changed;
    /** Tiles by number, the most recently used last. @type {Map<number, Tile>} */
    this.decoded = new Map();
    /** @type {Set<number>} */
    this.pending = new Set();
    /** Range of tiles, [first, end), by "lane depth". @type {Map<string, [number, number]>} */
    this.rows = new Map();
    /** Number of each tile's first event. @type {number[]} */
    this.first = [];
    this.size = 0; // number of all events
    for (let i = 0; i < this.tiles.lane.length; i++) {
      const key = `${this.tiles.lane[i]} ${this.tiles.depth[i]}`;
      const row = this.rows.get(key);
      if (row) row[1] = i + 1;
      else this.rows.set(key, [i, i + 1]);
      this.first.push(this.size);
      this.size += this.tiles.count[i];
    }
  }

  /**
   * Tiles of a row that overlap a time span.
   * @param {number} lane
   * @param {number} depth
   * @param {number} from
   * @param {number} to
   */
  *within(lane, depth, from, to) {
    const [begin, end] = this.rows.get(`${lane} ${depth}`) ?? [0, 0];
    for (let i = begin; i < end && this.tiles.from[i] <= to; i++) if (this.tiles.to[i] >= from) yield i;
  }

  /**
   * Decoded tiles per row in a time span; null for a row with tiles that are still being decoded
   * (this call starts decoding), and null instead of the list if there are no tiles or too many.
   * @param {{lane: number, depth: number}[]} rows
   * @param {number} from
   * @param {number} to
   * @returns {(Tile[] | null)[] | null}
   */
  of(rows, from, to) {
    if (!this.size) return null;
    const wanted = rows.map(({ lane, depth }) => [...this.within(lane, depth, from, to)]);
    const count = wanted.reduce((sum, tiles) => sum + tiles.length, 0);
    if (count > MOST_TILES) return null;
    const missing = wanted.flat().filter((i) => !this.decoded.has(i) && !this.pending.has(i));
    if (missing.length) this.fetch(missing);
    return wanted.map((tiles) => (tiles.every((i) => this.decoded.has(i)) ? tiles.map((i) => this.use(i)) : null));
  }

  /** @param {number} tile */
  use(tile) {
    const columns = /** @type {Tile} */ (this.decoded.get(tile));
    this.decoded.delete(tile);
    this.decoded.set(tile, columns);
    return columns;
  }

  /** @param {number[]} missing */
  async fetch(missing) {
    for (const i of missing) this.pending.add(i);
    const found = await Promise.all(missing.map((i) => this.decode(i)));
    missing.forEach((i, k) => {
      this.pending.delete(i);
      this.keep(i, found[k]);
    });
    this.changed();
  }

  /** @param {number} tile @param {Tile} columns */
  keep(tile, columns) {
    this.decoded.set(tile, columns);
    for (const i of this.decoded.keys()) {
      if (this.decoded.size <= KEPT_TILES) break;
      this.decoded.delete(i);
    }
  }

  /** @param {number} tile @returns {Promise<Tile>} */
  async decode(tile) {
    const count = this.tiles.count[tile],
      columns = await unpackColumns(this.tiles.data[tile], this.tiles.fields, count);
    const lane = this.tiles.lane[tile],
      depth = this.tiles.depth[tile];
    return /** @type {any} */ (Object.assign(columns, { lane, depth, first: this.first[tile], count }));
  }

  /** The tile of an event. @param {number} number */
  tileOf(number) {
    let low = 0,
      high = this.first.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.first[middle] <= number) low = middle;
      else high = middle;
    }
    return low;
  }

  /** Lane and row of an event. @param {number} number */
  placeOf(number) {
    const tile = this.tileOf(number);
    return { lane: this.tiles.lane[tile], depth: this.tiles.depth[tile] };
  }

  /** All columns of an event and its place, by event number. @param {number} number @returns {Promise<TimelineEvent>} */
  async event(number) {
    const tile = this.tileOf(number);
    if (!this.decoded.has(tile)) this.keep(tile, await this.decode(tile));
    const columns = this.use(tile),
      /** @type {any} */ event = { number, ...this.placeOf(number) };
    for (const { name } of this.tiles.fields) event[name] = columns[name][number - columns.first];
    return event;
  }
}
