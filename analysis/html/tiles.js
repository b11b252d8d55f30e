/* The timeline at full resolution: compressed tiles of calls, decoded where the view needs them. */

const TILE_COLUMNS = [
  ["ts", 8],
  ["dur", 8],
  ["name", 4],
  ["kind", 1],
  ["op", 4],
];
const MOST_TILES = 400, // that one view may ask for; with more, merged blocks are drawn
  KEPT_TILES = 1200;

class Tiles {
  /** `changed` is called when tiles that a view asked for have been decoded. */
  constructor(tiles, changed) {
    this.tiles = tiles;
    this.changed = changed;
    this.decoded = new Map(); // tile to its columns, those used last at the end
    this.pending = new Set();
    this.rows = new Map(); // "lane depth" to [first tile, end)
    for (let i = 0; i < (tiles?.lane.length ?? 0); i++) {
      const key = `${tiles.lane[i]} ${tiles.depth[i]}`;
      const row = this.rows.get(key);
      if (row) row[1] = i + 1;
      else this.rows.set(key, [i, i + 1]);
    }
  }

  /** Tiles of a row that reach into a time span. */
  *within(lane, depth, from, to) {
    const [begin, end] = this.rows.get(`${lane} ${depth}`) ?? [0, 0];
    for (let i = begin; i < end && this.tiles.from[i] <= to; i++) if (this.tiles.to[i] >= from) yield i;
  }

  /**
   * Decoded tiles of each of some rows in a time span, null for a row of which some are not there yet (they are
   * fetched); null for all where they are too many.
   */
  of(rows, from, to) {
    if (!this.tiles) return null;
    const wanted = rows.map(({ lane, depth }) => [...this.within(lane, depth, from, to)]);
    const count = wanted.reduce((sum, tiles) => sum + tiles.length, 0);
    if (count > MOST_TILES) return null;
    const missing = wanted.flat().filter((i) => !this.decoded.has(i) && !this.pending.has(i));
    if (missing.length) this.fetch(missing);
    return wanted.map((tiles) => (tiles.every((i) => this.decoded.has(i)) ? tiles.map((i) => this.use(i)) : null));
  }

  use(tile) {
    const columns = this.decoded.get(tile);
    this.decoded.delete(tile);
    this.decoded.set(tile, columns);
    return columns;
  }

  async fetch(missing) {
    for (const i of missing) this.pending.add(i);
    const found = await Promise.all(missing.map((i) => this.decode(i)));
    missing.forEach((i, k) => {
      this.pending.delete(i);
      this.decoded.set(i, found[k]);
    });
    for (const i of this.decoded.keys()) {
      if (this.decoded.size <= KEPT_TILES) break;
      this.decoded.delete(i);
    }
    this.changed();
  }

  async decode(tile) {
    const bytes = Uint8Array.from(atob(this.tiles.data[tile]), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const plain = new Uint8Array(await new Response(stream).arrayBuffer());
    const count = this.tiles.count[tile],
      columns = { lane: this.tiles.lane[tile], count };
    let at = 0;
    for (const [name, size] of TILE_COLUMNS) {
      columns[name] = column(plain.subarray(at, (at += count * size)), count, size);
    }
    for (let i = 1; i < count; i++) columns.ts[i] += columns.ts[i - 1];
    return columns;
  }
}

/** Signed numbers of `size` bytes, of which the least significant bytes of all come first. */
function column(planes, count, size) {
  const values = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    let value = 0;
    for (let k = size - 1; k >= 0; k--) value = value * 256 + planes[k * count + i];
    const top = planes[(size - 1) * count + i];
    values[i] = top < 128 ? value : value - 256 ** size;
  }
  return values;
}
