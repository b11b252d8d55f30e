/* Parts of the page that need no document: blocks, names, CSV, runs of blocks. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { csvOf } from "../src/csv.js";
import { bare, classesOf, counted, moduleClass, short, shortenedName, useKernelLabels } from "../src/names.js";
import { unpackColumns, unpackJson } from "../src/packed.js";
import { firstEnding, numbersOf, rowsOf } from "../src/timeline/blocks.js";
import { longestGap } from "../src/timeline/events.js";
import { Tiles } from "../src/timeline/tiles.js";

const packed = (bytes) => deflateSync(Uint8Array.from(bytes)).toString("base64");

test("columns are unpacked from the bytes of their values, least significant first", async () => {
  // two-byte ts, stored as differences: 1, 300, −2; one-byte kind: 5, −1, 127
  const text = packed([1, 300 & 255, 254, 0, 300 >> 8, 255, 5, 255, 127]);
  const fields = [{ name: "ts", size: 2, delta: true }, { name: "kind", size: 1, delta: false }];
  const { ts, kind } = await unpackColumns(text, fields, 3);
  assert.deepEqual([...ts], [1, 301, 299]);
  assert.deepEqual([...kind], [5, -1, 127]);
});

test("values of more than four bytes are exact", async () => {
  const large = 2 ** 40 + 3,
    bytes = Array.from({ length: 6 }, (_, at) => Math.floor(large / 256 ** at) % 256);
  assert.deepEqual([...(await unpackColumns(packed(bytes), [{ name: "ts", size: 6, delta: false }], 1)).ts], [large]);
});

test("JSON is unpacked", async () => {
  assert.deepEqual(await unpackJson(packed(Buffer.from('{"a": ["ä", 1]}'))), { a: ["ä", 1] });
});

test("long names are shortened in the middle; kernels are shown by their readable names", () => {
  const long = `void at::native::kernel<${"x".repeat(500)}>`;
  useKernelLabels({ [long]: "elementwise add<float>" });
  assert.equal(bare(long), "elementwise add<float>");
  assert.equal(bare(shortenedName(long)), "elementwise add<float>", "as the timeline cuts it");
  assert.equal(short("nn.Module: Linear_3"), "Linear_3");
  assert.equal(short("a".repeat(100), 10).length, 10);
  assert.equal(moduleClass("nn.Module: Linear_3"), "Linear");
  assert.equal(moduleClass("Layer × 12"), "Layer");
  assert.equal(classesOf(["Net_0", "Layer_11"]), "Net / Layer");
  assert.equal(counted(["a", "a", "b", "a"]), "a ×2, b, a");
});

test("CSV contains no text that a spreadsheet would read as a formula", () => {
  const columns = [{ key: "name" }, { key: "ns" }];
  const rows = [
    { name: "=1+1", ns: -5 }, { name: 'say "a, b"', ns: null }, { name: "a\n+b", ns: 1 }, { name: "plain", ns: 2 },
  ];
  assert.equal(csvOf(columns, rows), "name,ns\n'=1+1,-5\n\"say \"\"a, b\"\"\",\n\"a\n'+b\",1\nplain,2\n");
});

test("blocks with the same lane and depth form one row", () => {
  const rows = rowsOf({ lane: [0, 0, 0, 1], depth: [0, 0, 1, 1], ts: [0, 5, 1, 0] });
  assert.deepEqual(rows, [
    { lane: 0, depth: 0, begin: 0, end: 2 }, { lane: 0, depth: 1, begin: 2, end: 3 }, { lane: 1, depth: 1, begin: 3, end: 4 },
  ]);
  assert.deepEqual(numbersOf([3, 1, 2]), [0, 3, 4]);
});

test("the first block that ends after a given time is found", () => {
  const ts = [0, 10, 20, 30],
    dur = [5, 5, 5, 5];
  const brute = (time) => ts.findIndex((start, at) => start + dur[at] >= time);
  for (let time = 0; time <= 35; time++) assert.equal(firstEnding(ts, dur, 0, 4, time), brute(time), `at ${time}`);
  assert.equal(firstEnding(ts, dur, 0, 4, 36), 4);
});

test("the longest gap is found if events overlap", () => {
  assert.deepEqual(longestGap([{ ts: 0, dur: 50 }, { ts: 10, dur: 5 }, { ts: 55, dur: 1 }, { ts: 90, dur: 1 }]), { from: 56, to: 90 });
  assert.equal(longestGap([{ ts: 0, dur: 5 }]), null);
});

test("events are numbered in the order of their tiles", async () => {
  const block = (...ts) => packed(ts);
  const tiles = new Tiles(
    {
      fields: [{ name: "ts", size: 1, delta: false }],
      lane: [0, 0, 2], depth: [0, 0, 1], from: [0, 20, 0], to: [10, 30, 99], count: [2, 1, 1],
      data: [block(0, 9), block(20), block(40)],
    },
    () => {},
  );
  assert.equal(tiles.size, 4);
  assert.deepEqual([0, 1, 2, 3].map((number) => tiles.tileOf(number)), [0, 0, 1, 2]);
  assert.deepEqual(tiles.placeOf(3), { lane: 2, depth: 1 });
  assert.deepEqual([...tiles.within(0, 0, 11, 25)], [1]);
  assert.deepEqual(await tiles.event(1), { number: 1, lane: 0, depth: 0, ts: 9 });
});
