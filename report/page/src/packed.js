/* Compressed blocks of the page: columns of numbers, and JSON. */


/** @param {string} text */
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} text */
export async function unpackJson(text) {
  return JSON.parse(new TextDecoder().decode(await unpack(text)));
}

/**
 * Columns of `count` values by name; `fields` describes their encoding.
 * @param {string} text
 * @param {Field[]} fields
 * @param {number} count
 * @returns {Promise<Columns>}
 */
export async function unpackColumns(text, fields, count) {
  const plain = await unpack(text),
    /** @type {Columns} */ columns = {};
  let at = 0;
  for (const { name, size, delta } of fields) {
    const values = column(plain.subarray(at, (at += count * size)), count, size);
    if (delta) for (let i = 1; i < count; i++) values[i] += values[i - 1];
    columns[name] = values;
  }
  return columns;
}

/**
 * Signed numbers of `size` bytes; the least significant bytes of all numbers come first.
 * @param {Uint8Array} planes
 * @param {number} count
 * @param {number} size
 */
export function column(planes, count, size) {
  const values = new (size > 4 ? Float64Array : Int32Array)(count);
  for (let i = 0; i < count; i++) {
    let value = (planes[(size - 1) * count + i] << 24) >> 24;
    for (let k = size - 2; k >= 0; k--) value = value * 256 + planes[k * count + i];
    values[i] = value;
  }
  return values;
}
