/* Numbers with their units. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { columnUnit, fixed, neat, percent, show, unitFor } from "../src/units.js";

test("a number is shown in the unit in which it reads best", () => {
  for (const [value, unit, text] of [
    [0, "ns", "0 ns"], [999, "ns", "999 ns"], [1000, "ns", "1.00 µs"], [-1500, "ns", "-1.50 µs"], [12_345_678, "ns", "12.3 ms"],
    [5e12, "ns", "5,000 s"], [231_424, "bytes", "231 kB"], [3e15, "flop", "3.00 PFLOP"], [2e12, "bytes/s", "2.00 TB/s"],
    [1234567, "count", "1,234,567"], [0.5, "share", "50.0 %"], [1, "share", "100 %"], [0.0001, "share", "< 0.1 %"],
    [0.00012, "x", "1.2e-4 x"], [3.14159, "", "3.14"], [null, "ns", "–"], [NaN, "ns", "–"],
  ])
    assert.equal(show(value, unit), text);
});

test("axis labels have no trailing zeros", () => {
  assert.equal(neat(1000, "ns"), "1 µs");
  assert.equal(neat(1200, "ns"), "1.2 µs");
  assert.equal(neat(10_000, "ns"), "10 µs");
});

test("all values of a column share one unit that is not too large for most rows", () => {
  const rows = [1000, 2000, 3000, 5_000_000].map((total_ns) => ({ total_ns }));
  assert.deepEqual(columnUnit({ key: "total_ns", unit: "ns" }, rows), unitFor("ns", Math.sqrt(3000 * 5_000_000)));
  assert.deepEqual(columnUnit({ key: "share", unit: "share" }, rows), ["%", 1]);
  assert.deepEqual(columnUnit({ key: "name", unit: "text", title: "" }, rows), ["", 1]);
  assert.deepEqual(columnUnit({ key: "ratio", unit: "×" }, rows), ["×", 1]);
  assert.deepEqual(columnUnit({ key: "mean_ns", like: "total_ns", unit: "ns" }, rows)[0], "µs");
});

test("numbers in a column have three significant digits", () => {
  assert.deepEqual([0.1234, 1.234, 12.34, 123.4, 1234.5].map(fixed), ["0.123", "1.234", "12.34", "123.4", "1,235"]);
  assert.deepEqual([0, 0.0005, 0.123, 1].map(percent), ["0", "< 0.1", "12.3", "100"]);
});
