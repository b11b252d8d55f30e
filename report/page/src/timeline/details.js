/* Details of single events: their columns, their relations to other events, and the texts to which both refer. */

import { unpackColumns, unpackJson } from "../packed.js";

const KEPT_DETAILS = 64;

export class Details {
  /** @param {PackedDetails} packed @param {import("./tiles.js").Tiles} tiles @param {Lane[]} lanes */
  constructor(packed, tiles, lanes) {
    this.packed = packed;
    this.tiles = tiles;
    this.lanes = lanes;
    /** Columns and relations of tiles. @type {Map<number, Promise<{columns: Columns, sources: Columns, targets: Columns}>>} */
    this.kept = new Map();
    /** @type {Promise<Texts> | null} */
    this.unpacked = null;
  }

  /** @returns {Promise<Texts>} */
  texts() {
    return (this.unpacked ??= unpackJson(this.packed.texts));
  }

  /**
   * All details of an event: its columns, `sources` and `targets`, [{kind, other}].
   * @param {number} number
   * @returns {Promise<DetailedEvent>}
   */
  async of(number) {
    const tile = this.tiles.tileOf(number),
      { columns, sources, targets } = await this.tile(tile),
      at = number - this.tiles.first[tile],
      event = /** @type {DetailedEvent} */ (await this.tiles.event(number));
    for (const name in columns) event[name] = columns[name][at];
    event.gpu = this.lanes[event.lane].gpu;
    event.sources = this.related(sources, at);
    event.targets = this.related(targets, at);
    return event;
  }

  /** @param {number} tile @returns {Promise<{columns: Columns, sources: Columns, targets: Columns}>} */
  tile(tile) {
    let found = this.kept.get(tile);
    if (!found) {
      found = this.decode(tile);
      this.kept.set(tile, found);
      if (this.kept.size > KEPT_DETAILS) this.kept.delete([...this.kept.keys()][0]);
    }
    return found;
  }

  /** @param {number} tile */
  async decode(tile) {
    const { packed } = this,
      fields = this.lanes[this.tiles.tiles.lane[tile]].gpu ? packed.gpu : packed.cpu;
    const links = (/** @type {"sources" | "targets"} */ side) => unpackColumns(packed[side].data[tile], packed.links, packed[side].count[tile]);
    const [columns, sources, targets] = await Promise.all([
      unpackColumns(packed.data[tile], fields, this.tiles.tiles.count[tile]),
      links("sources"),
      links("targets"),
    ]);
    return { columns, sources, targets };
  }

  /** @param {Columns} columns @param {number} place @returns {Relation[]} */
  related({ kind, at, other }, place) {
    const found = [];
    for (let i = 0; i < at.length; i++)
      if (at[i] === place) found.push({ kind: this.packed.relations[kind[i]], other: other[i] });
    return found;
  }

  /**
   * The first related event of one kind; null if no such event is on the page.
   * @param {Relation[]} relations
   * @param {string} kind
   */
  static first(relations, kind) {
    return relations.find((one) => one.kind === kind && one.other >= 0)?.other ?? null;
  }
}
