/* Which columns of a table are shown. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { saysSomething } from "../src/table.js";

const says = (unit, values, several) => saysSomething({ key: "x", title: "X", unit, several }, values.map((x) => ({ x })));

test("a column without values is left out; 0 is treated as a value only if it distinguishes rows", () => {
  assert.ok(says("ns", [0, 5]) && says("text", ["", "a"]) && says("number", [0]));
  assert.ok(!says("ns", [0, 0]) && !says("text", ["", ""]) && !says("share", [null, undefined]) && !says("number", [null]));
});

test("the device is shown only if there are several", () => {
  assert.ok(says("number", [0, 1], true) && !says("number", [0, 0], true));
});
