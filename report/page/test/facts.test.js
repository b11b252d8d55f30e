/* What the details of an event say: labels, units, and values that cannot be right. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { deviceFacts } from "../src/timeline/facts.js";

const CONFIG = {
  grid: [292026, 1, 1],
  block: [256, 1, 1],
  context: 1,
  "registers per thread": 32,
  "shared memory": 231424,
  "blocks per SM": 9125.818359,
  "warps per SM": 73006.546875,
  "est. achieved occupancy %": 0,
};
const EVENT = {
  category: 0, config: 0, comm: 0, dtype: 0, flops: 3_000_000, bytes: 3_000_000, dur: 1000, delay: 1500, correlation: 7,
  id: 8, kineto_event: 9, step: -1, reason: 0, link: -1, captured: -1, generated: -1, module: -1, phase: 0, entry: -1,
};
const DEVICE = { peaks: { float32: 2e12 }, memory_gb_s: 2000 };

/** Label to text of the facts of a device event. */
function facts({ config = CONFIG, comm = {}, event = {}, generated = { name: "", lines: [] } } = {}) {
  const texts = {
    categories: ["kernel"], dtypes: ["float32"], configs: [config], comms: [comm], links: [], evidence: {}, captured: [],
    reasons: [""], steps: [], modules: [], phases: [""], stacks: null, generated: [generated],
  };
  const found = deviceFacts({ ...EVENT, ...event }, texts, { device: 0, stream: 7 }, null, { 0: DEVICE });
  return Object.fromEntries(found.map((one) => [one.label, one.text]));
}

test("the arguments of a launch have units", () => {
  const texts = facts();
  assert.equal(texts.Grid, "292026 × 1 × 1");
  assert.equal(texts.Block, "256 × 1 × 1");
  assert.equal(texts["Registers per thread"], "32");
  assert.equal(texts["Shared memory per block"], "231 kB");
  assert.equal(texts["Warps per SM (whole launch)"], "73,007", "warps of the whole grid");
  assert.equal(texts["Blocks per SM (whole launch)"], "9,126");
  assert.equal(texts["Occupancy, estimated"], "< 0.5 %");
  assert.equal(texts["Launch delay"], "1.50 µs");
});

test("impossible values are left out", () => {
  const wrong = [
    ["est. achieved occupancy %", -100], ["est. achieved occupancy %", 140], ["warps per SM", -1],
    ["blocks per SM", "many"], ["registers per thread", 2 ** 31], ["shared memory", -4], ["grid", [0, 1, 1]],
    ["block", [1.5]], ["grid", []], ["shared memory", null],
  ];
  const all = facts();
  for (const [key, value] of wrong) {
    const left = facts({ config: { ...CONFIG, [key]: value } });
    assert.equal(Object.keys(left).length, Object.keys(all).length - 1, `${key} = ${value}`);
    for (const [label, text] of Object.entries(left)) assert.equal(text, all[label]);
  }
});

test("a share above 100% of a peak comes with an explanation", () => {
  const texts = facts(); // 3 TFLOP/s of a 2 TFLOP/s peak, 3 TB/s of a 2 TB/s peak
  for (const peak of ["bandwidth", "float32 peak"]) assert.match(texts[`Share of the ${peak}`], /^150\.0 % \(above the peak/);
  const below = facts({ event: { dur: 2000 } });
  assert.equal(below["Share of the bandwidth"], "75.0 %");
  assert.equal(below["Share of the float32 peak"], "75.0 %");
});

test("the share of the bandwidth is shown only for bytes that came from memory", () => {
  assert.equal("Share of the bandwidth" in facts({ event: { bytes: -1 } }), false);
});

test("the facts of a communication have units, and each of its fields has a label", () => {
  const comm = {
    collective: "allreduce", dtype: "float", in_nelems: 4_000_000, out_nelems: 4_000_000, bytes: 16_000_000, group_size: 4,
    pg_name: "1", pg_desc: "default_pg", pg_ranks: [0, 1, 2, 3], src_rank: 1, dst_rank: 2, seq: 3, in_split: [1, 2],
    out_split: [1, 2], pg_first_rank: 0,
    inferred_messages: [{ collective: "send", dst_rank: 1 }, { collective: "recv", src_rank: 2 }],
  };
  const texts = facts({ comm });
  assert.equal(texts.Communicated, "16.0 MB");
  assert.equal(texts["Elements in"], "4,000,000");
  assert.equal(texts.Ranks, "0, 1, 2, 3");
  assert.equal(texts["Messages sent together (inferred)"], "send 1, recv 2");
  assert.equal(Object.keys(texts).length, Object.keys(facts()).length + Object.keys(comm).length);
});

test("the facts of a generated kernel include the location of its code and the nodes that it fuses", () => {
  const kernel = {
    name: "triton_poi_fused_add_gelu_1", region: "Torch-Compiled Region: 0/0", backward: true, handle: 7,
    nodes: ["add", "gelu"], kernel_file: "/tmp/ab/cab.py", kernel_hash: "cab", kernel_kwargs: "XBLOCK=8",
    lines: ["net.py:3 (forward)", "net.py:4 (forward)"],
  };
  const texts = facts({ event: { generated: 0 }, generated: kernel });
  assert.equal(texts["Compiled as"], kernel.name);
  assert.equal(texts["Fused from"], "add, gelu");
  assert.equal(texts["Compiled region"], "Torch-Compiled Region: 0/0, backward, call 7");
  assert.equal(texts["Source lines (fused)"], "net.py:3 (forward); net.py:4 (forward)");
  assert.equal(texts["Kernel file"], "/tmp/ab/cab.py");
  assert.equal(texts["Kernel hash"], "cab");
  assert.equal(texts["Kernel constants"], "XBLOCK=8");
  const plain = facts({ event: { generated: 0 }, generated: { name: "triton_0", lines: ["net.py:3 (f)"] } });
  assert.equal(plain["Compiled as"], "triton_0");
  for (const label of ["Source lines (fused)", "Compiled region", "Compiled from", "Kernel file"]) assert.equal(label in plain, false);
  assert.equal("Compiled as" in facts(), false);
});
