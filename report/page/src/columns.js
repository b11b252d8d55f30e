/* Table columns: columns that the page defines itself, and titles of columns that come with its data. */

import { page } from "./state.js";

/** Key, title, unit and meaning. @type {Record<string, [string, string, string, string][]>} */
const MADE = {
  ranks: [
    ["name", "Rank", "text", "Rank."],
    ["file", "File", "name", "File with this rank's trace."],
    ["span", "Duration", "ns", "Duration of the trace."],
    ["latency", "Mean step", "ns", "Mean duration of a step."],
    ["busy", "GPU busy", "share", "Share of the trace during which the rank's GPUs are busy."],
    ["computing", "Computing", "ns", "Time during which a compute kernel runs."],
    ["communication", "Communicating", "ns", "Time during which a communication kernel runs."],
    ["exposed", "Exposed", "ns", "Communication time during which no compute kernel runs."],
    ["waiting", "Above minimum", "ns", "Communication time beyond the minimum over all ranks, probably spent waiting for other ranks."],
    ["idle", "Idle", "ns", "Time during which no GPU event runs."],
    ["events", "GPU events", "count", "Number of GPU events."],
    ["linked", "Linked", "share", "Share of operators that are linked with the Execution Trace."],
  ],
  collectives: [
    ["start", "Start", "ns", "Start on the first rank."],
    ["kind", "Collective", "text", "Kind of the collective."],
    ["group", "Group", "name", "Process group."],
    ["bytes", "Message", "bytes", "Size of the message."],
    ["length", "Duration", "ns", "Time from the start on the first rank to the end on the last rank."],
    ["waited", "Waited", "ns", "Total time that ranks waited for the last rank to arrive."],
    ["longest", "Longest wait", "ns", "Longest wait of any rank."],
    ["last", "Last to arrive", "text", "Rank that arrived last."],
  ],
  waits: [
    ["label", "Rank", "text", "Rank."],
    ["collectives", "Collectives", "count", "Number of collectives in which ranks wait for each other."],
    ["last", "Last to arrive", "count", "Number of collectives at which this rank arrived last."],
    ["caused", "Others waited for it", "ns", "Total time that other ranks waited for this rank."],
    ["waited", "Waited itself", "ns", "Total time that this rank waited."],
    ["offset", "Clock ahead", "ns", "Clock offset relative to the lowest-numbered rank; the page corrects for it."],
    ["spread", "Spread", "ns", "Median deviation of individual collectives from the clock offset."],
  ],
  span: [
    ["name", "Name", "name", "Name."],
    ["kind", "Kind", "text", "Kind."],
    ["count", "Count", "count", "Number of events."],
    ["total", "Time", "ns", "Time within the span, including nested calls."],
    ["share", "Share", "share", "Share of the span; above 100 % if events overlap."],
  ],
};

/** Columns that use the unit of another column, so that their numbers are comparable. @type {Record<string, string>} */
const LIKE = { std: "mean", t3: "t2" };

/** Titles for columns whose heading is too short, or is a unit. @type {Record<string, string>} */
const TITLES = {
  flops_per_second: "Achieved",
  operator_flops_per_second: "Whole operator",
  flops_share: "Of peak",
  bytes_per_second: "Bandwidth",
  most_bytes_per_second: "Bandwidth at most",
  bytes_share: "Of bandwidth",
  bound: "Bound by",
  ops: "Operators",
  flops: "FLOPs",
  bytes: "Size",
  allocated_bytes: "Allocated",
  algorithm_bandwidth: "Bandwidth",
  bus_bandwidth: "Bus bandwidth",
  self_ns: "CPU self",
  host: "CPU call",
  host_wait_ns: "Launched late",
  kernel_wait_ns: "Between kernels",
  other_ns: "Other waits",
  before_first_ns: "Before first",
  after_last_ns: "After last",
  "idle_causes longest": "Longest queue",
  "idle_causes mean": "Mean queue",
  full_ns: "Queue full",
  median_call_ns: "Median call",
  median_delay_ns: "Median delay",
  max_delay_ns: "Longest delay",
  short: "Shorter than call",
  long_calls: "Calls > 50 µs",
  long_delays: "Delays > 100 µs",
  window_ns: "Duration",
  busy_share_of_gpu_span: "Busy, first to last",
  overlapped_ns: "Overlapping",
  communication_ns: "Communication",
  exposed_communication_ns: "Exposed",
  host_before_ns: "CPU before",
  ns_per_output_token: "Per output token",
  ns_per_prefill_token: "Per prefill token",
  min_ns: "Shortest",
  a_communication_ns: "A communication",
  b_communication_ns: "B communication",
  a_device_ns: "A GPU",
  b_device_ns: "B GPU",
  a_host_ns: "A CPU",
  b_host_ns: "B CPU",
  a_self_ns: "A CPU self",
  b_self_ns: "B CPU self",
  change_self_ns: "B−A CPU self",
};

/** Columns of a table; the first word of its name selects them. @param {string} table @returns {TableColumn[]} */
export function columnsOf(table) {
  const [name] = table.split(/[ -]/),
    made = MADE[name];
  if (made) return made.map(([key, title, unit, hint]) => ({ key, title, unit, hint, like: LIKE[key] }));
  return page.report.columns[name].map((column) => ({
    ...column,
    title: TITLES[`${name} ${column.key}`] ?? TITLES[column.key] ?? column.title.replace(/^host\b/i, "CPU"),
  }));
}
