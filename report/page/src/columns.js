/* Columns of tables: those that the page makes itself, and titles of those that come with its data. */

import { page } from "./state.js";

/** Key, title, unit and meaning. @type {Record<string, [string, string, string, string][]>} */
const MADE = {
  ranks: [
    ["name", "Rank", "text", "Rank."],
    ["file", "File", "name", "File of its trace."],
    ["span", "Duration", "ns", "Duration of the trace."],
    ["latency", "Mean step", "ns", "Mean duration of a step."],
    ["busy", "GPU busy", "share", "Share of the trace in which its GPUs are busy."],
    ["computing", "Computing", "ns", "Time with a compute kernel."],
    ["communication", "Communicating", "ns", "Time with a communication kernel."],
    ["exposed", "Exposed", "ns", "Communication time without a compute kernel."],
    ["waiting", "Above minimum", "ns", "Communication time above the minimum of all ranks, probably waits for other ranks."],
    ["idle", "Idle", "ns", "Time without a GPU event."],
    ["events", "GPU events", "count", "Number of GPU events."],
    ["linked", "Linked", "share", "Operators that are linked with the Execution Trace."],
  ],
  collectives: [
    ["start", "Start", "ns", "Start on the first rank."],
    ["kind", "Collective", "text", "Kind of the collective."],
    ["group", "Group", "name", "Process group."],
    ["bytes", "Message", "bytes", "Size of the message."],
    ["length", "Duration", "ns", "From the start on the first rank to the end on the last."],
    ["waited", "Waited", "ns", "Sum of the ranks' waits for the last rank."],
    ["longest", "Longest wait", "ns", "Longest wait of a rank."],
    ["last", "Last to arrive", "text", "Rank that arrived last."],
  ],
  waits: [
    ["label", "Rank", "text", "Rank."],
    ["collectives", "Collectives", "count", "Collectives in which ranks wait for each other."],
    ["last", "Last to arrive", "count", "Collectives at which the rank arrived last."],
    ["caused", "Others waited for it", "ns", "Sum of the other ranks' waits for this rank."],
    ["waited", "Waited itself", "ns", "Sum of the waits of this rank."],
    ["offset", "Clock ahead", "ns", "Clock offset against the lowest rank; the page corrects it."],
    ["spread", "Spread", "ns", "Median deviation of single collectives from the clock offset."],
  ],
  span: [
    ["name", "Name", "name", "Name."],
    ["kind", "Kind", "text", "Kind."],
    ["count", "Count", "count", "Events."],
    ["total", "Time", "ns", "Time within the span, including calls inside."],
    ["share", "Share", "share", "Share of the span; above 100 % if several events run at a time."],
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
