/* The first sentences of a page, and kernels of one name. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { useKernelLabels } from "../src/names.js";
import { kernelsByName } from "../src/sections/kernels.js";
import { verdict } from "../src/sections/overview.js";
import { stragglerOf } from "../src/sections/straggler.js";

const use = { window_ns: 100, busy_ns: 41, gpu_span_ns: 80, idle_ns: 59, compute_ns: 41, communication_ns: 0, exposed_communication_ns: 0 },
  causes = { before_first_ns: 30, host_wait_ns: 20, kernel_wait_ns: 5, other_ns: 0, after_last_ns: 4 },
  rank = (number) => ({ rank: number, label: String(number), analysis: { device_use: [use], idle_causes: [causes] } }),
  late = (last, caused) => ({ last, caused, collectives: 8 }),
  report = { ranks: [rank(3), rank(7)], job: { ranks: [late(3, 2e6), late(5, 13.7e6)] }, findings: { found: [] } };

test("a job's page opens with its straggler", () => {
  assert.equal(verdict(report, report.ranks[0]), "Rank\u00a07 is last in 5 of 8 collectives; the others wait 13.7 ms. Rank\u00a03: GPU idle 59.0 %, mostly before the first GPU event.");
  assert.equal(stragglerOf({ ...report, job: { ranks: [late(4, 0), late(4, 0)] } }), null, "no rank waits");
  assert.equal(stragglerOf({ ranks: [rank(0)], job: null }), null);
});

test("with many ranks, the straggler is the rank that the others wait for longest", () => {
  const columns = ["rank", "collectives", "last", "caused", "straggler"].map((title, at) => ({ key: String(at), title })),
    tables = [{ name: "stragglers", columns, rows: [[4, 8, 3, 2e6, false], [9, 8, 5, 1e6, true]] }],
    many = { stragglers: [9], tables };
  assert.deepEqual(stragglerOf({ ...report, many }), { name: "rank 9", text: "is last in 5 of 8 collectives; the others wait 1.00 ms" });
  assert.equal(stragglerOf({ ...report, many: { stragglers: [], tables } }), null);
});

test("a page of one trace opens with its idle time and its first problem", () => {
  const note = { title: "a note", gain: null, cost_ns: null },
    found = [note, { title: "softmax takes long", gain: null, cost_ns: 5 }],
    alone = { ranks: [rank(null)], job: null, findings: { found } };
  assert.equal(verdict(alone, alone.ranks[0]), "GPU idle 59.0 %, mostly before the first GPU event. Softmax takes long.");
});

test("kernels with the same readable name form one row", () => {
  useKernelLabels({ k1: "gemm", k2: "gemm" });
  const none = { flops: null, flops_per_second: null, operator_flops_per_second: null, flops_share: null, bytes_share: null },
    row = (kernel, more) => ({ device: 0, kernel, dtype: "", ops: "mm", bound: "", bytes: null, bytes_per_second: null, most_bytes: null, most_bytes_per_second: null, intensity: null, ...none, ...more });
  const rows = [
    row("k1", { count: 1, total_ns: 10, flops: 40, flops_per_second: 4, flops_share: 0.4, dtype: "f16" }),
    row("other", { count: 5, total_ns: 9 }),
    row("k2", { count: 3, total_ns: 30, flops: 60, flops_per_second: 2, flops_share: 0.2, dtype: "f32" }),
    row("k2", { count: 1, total_ns: 5 }),
    row("k1", { device: 1, count: 1, total_ns: 1 }),
  ];
  const [gemm, other, second] = kernelsByName(rows);
  assert.deepEqual([gemm.count, gemm.total_ns, gemm.mean_ns, gemm.variants, gemm.dtype], [5, 45, 9, 3, "f16 f32"]);
  assert.deepEqual([gemm.flops_per_second, gemm.flops_share, gemm.bytes_per_second], [2.5, 0.25, null]);
  assert.deepEqual([other, second], [rows[1], rows[4]]);
  useKernelLabels({});
});
