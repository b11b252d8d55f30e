/* Details of an event, as rows: a label, a text, and the plain value. */

import { plain, show } from "../units.js";

/** @type {Record<string, [string, string]>} */
export const RELATION_TEXTS = {
  // two labels for each kind of relation: one for the source event, one for the target event
  caller: ["Called by", "Calls"],
  operator: ["Launching operator", "GPU work launched"],
  launch: ["Launch call", "Launches"],
  forward: ["Forward operator", "Backward operator"],
  data: ["Reads data from", "Data read by"],
  thread: ["Previous operator on the thread", "Next operator on the thread"],
  stream: ["Previous on the stream", "Next on the stream"],
  event: ["Waits for (event)", "Awaited by (event)"],
  sync: ["Waits for the GPU (sync)", "Awaited by the CPU (sync)"],
  thread_handoff: ["Handed over by thread", "Hands over to thread"],
  comm: ["Previous collective of the group", "Next collective of the group"],
  graph: ["Graph dependency on", "Graph dependency of"],
};

/** @param {string} key @param {string} label @param {any} value @param {string} [text] @returns {Fact} */
export const fact = (key, label, value, text) => ({ key, label, value, text: text ?? String(value) });

/** @param {(Fact | null)[]} facts */
export const known = (facts) => facts.filter((one) => one !== null).filter((one) => (one.value ?? -1) !== -1);

/** @param {string} key @param {string} label @param {number} value @param {string} unit */
const amount = (key, label, value, unit) => fact(key, label, value, show(value, unit));

/** @param {string} key @param {string} label @param {number} ns */
export const time = (key, label, ns) => amount(key, label, ns, "ns");

/** "[8, 4] float32, [4] float32". @param {any[][]} shapes @param {string[]} dtypes */
function shapesText(shapes, dtypes) {
  return shapes.map((shape, i) => `[${shape.join(", ")}]${dtypes[i] ? ` ${dtypes[i]}` : ""}`).join(", ");
}

/** @param {Row | undefined} signature */
function signatureFacts(signature) {
  if (!signature) return [];
  const { shapes, dtypes, outputs, output_dtypes } = signature;
  return [
    shapes.length ? fact("shapes", "Inputs", shapes, shapesText(shapes, dtypes)) : null,
    outputs?.length ? fact("outputs", "Outputs", outputs, shapesText(outputs, output_dtypes)) : null,
  ];
}

/** Named regions around a call, outermost first. @param {Texts} texts @param {number} path */
export function regions(texts, path) {
  const found = [];
  for (let at = path; at > 0; at = texts.path_parents[at]) found.unshift(texts.path_names[at]);
  return found;
}

/**
 * Phase, module, source line and stack of an event; `modules` are already shown.
 * @param {DetailedEvent} event
 * @param {Texts} texts
 * @param {string[]} modules
 */
function originFacts(event, texts, modules) {
  const module = texts.modules?.[event.module],
    lines = texts.stacks,
    source = lines?.lines[lines.line[event.entry]],
    stack = [];
  for (let at = lines && event.entry >= 0 ? event.entry : -1; at >= 0; at = lines.above[at])
    stack.unshift(lines.names[lines.name[at]]);
  return [
    event.phase > 0 ? fact("phase", "Phase", texts.phases[event.phase]) : null,
    module && !modules.length ? fact("module", "Module", module) : null,
    source ? fact("source", "Source line", source) : null,
    stack.length ? fact("stack", "Python stack", stack, stack.join(" › ")) : null,
  ];
}

/** @param {Texts} texts @param {number} link @param {string} whose */
function linkFacts(texts, link, whose) {
  const label = texts.links[link],
    evidence = texts.evidence[label]; // undefined if nothing was linked
  if (!evidence) return [];
  return [
    fact("link", `Link to the Execution Trace${whose}`, label),
    evidence.length ? fact("evidence", "Evidence", evidence, evidence.join("; ")) : null,
  ];
}

/** Facts of a call or runtime call. @param {DetailedEvent} event @param {Texts} texts */
export function callFacts(event, texts) {
  const modules = regions(texts, event.path);
  return known([
    time("self_ns", "Self time", event.self_ns),
    event.device_events > 0 ? amount("device_events", "GPU events", event.device_events, "count") : null,
    event.device_ns > 0 ? time("device_ns", "GPU time", event.device_ns) : null,
    ...signatureFacts(texts.signatures[event.signature]),
    ...generatedFacts(texts.generated[event.generated]),
    modules.length ? fact("modules", "Modules", modules, modules.join(" / ")) : null,
    ...originFacts(event, texts, modules),
    fact("correlation", "Correlation", event.correlation),
    fact("seq", "Sequence number", event.seq),
    fact("id", "Node id", event.id),
    fact("kineto_event", "Kineto event", event.kineto_event),
    event.step >= 0 ? fact("step", "Step", texts.steps[event.step]) : null,
    ...linkFacts(texts, event.link, ""),
  ]);
}

const OVER_PEAK = "above the peak: the peak or the FLOPs are wrong for this kernel";

/** A share of a peak, with an explanation if it is above 100 %. @param {string} key @param {string} label @param {number} share */
const peakShare = (key, label, share) =>
  fact(key, label, share, share > 1 ? `${show(share, "share")} (${OVER_PEAK})` : show(share, "share"));

/** @param {unknown} value */
const extents = (value) =>
  Array.isArray(value) && value.length && value.every((one) => Number.isInteger(one) && one > 0) ? value.join(" × ") : null;

/** @param {any} value @param {number} most */
export const within = (value, most = Infinity) => typeof value === "number" && value >= 0 && value <= most;

// Maps launch arguments to labels and to functions that return the text of a value, or null if it is impossible.
// Kineto divides a launch's blocks and warps by the number of SMs, even if few run at a time. Occupancy is in whole percent.
/** @type {Record<string, [string, (value: any) => string | null]>} */
const LAUNCH_FACTS = {
  grid: ["Grid", extents],
  block: ["Block", extents],
  context: ["Context", String],
  "registers per thread": ["Registers per thread", (value) => (within(value, 1024) ? show(value, "count") : null)],
  "shared memory": ["Shared memory per block", (value) => (within(value, 2 ** 24) ? show(value, "bytes") : null)],
  "blocks per SM": ["Blocks per SM (whole launch)", (value) => (within(value) ? plain(value) : null)],
  "warps per SM": ["Warps per SM (whole launch)", (value) => (within(value) ? plain(value) : null)],
  "est. achieved occupancy %": [
    "Occupancy, estimated",
    (value) => (within(value, 100) ? (value ? `${plain(value)} %` : "< 0.5 %") : null),
  ],
};

// Maps each fact of a communication kernel to its label, and to a unit if it is a number.
/** @type {Record<string, [string, string?]>} */
const COMM_FACTS = {
  collective: ["Collective"],
  dtype: ["Message dtype"],
  in_nelems: ["Elements in", "count"],
  out_nelems: ["Elements out", "count"],
  bytes: ["Communicated", "bytes"],
  group_size: ["Group size", "count"],
  pg_name: ["Group"],
  pg_desc: ["Group description"],
  pg_ranks: ["Ranks"],
  src_rank: ["From rank"],
  dst_rank: ["To rank"],
  seq: ["Sequence in the group"],
  in_split: ["Elements to each rank"],
  out_split: ["Elements from each rank"],
  pg_first_rank: ["First rank of the group"],
  inferred_messages: ["Messages sent together (inferred)"],
};

/** A value of a communication as text. @param {string} name @param {any} value @param {string | undefined} unit */
function commText(name, value, unit) {
  if (name === "inferred_messages")
    return value.map((/** @type {Row} */ sent) => `${sent.collective} ${sent.dst_rank ?? sent.src_rank ?? ""}`.trim()).join(", ");
  return Array.isArray(value) ? value.join(", ") : unit ? show(value, unit) : String(value);
}

/** Recorded facts of a communication. @param {Row} comm */
function commFacts(comm) {
  return Object.entries(comm).map(([name, value]) => {
    const [label, unit] = COMM_FACTS[name],
      text = value === null ? "" : commText(name, value, unit);
    return value === null || text === "" ? null : fact(`comm.${name}`, label, value, text);
  });
}

/** Arguments of a launch that are recorded and possible. @param {Row} config */
function launchFacts(config) {
  return Object.entries(config).map(([name, value]) => {
    const [label, textOf] = LAUNCH_FACTS[name],
      text = value === null ? null : textOf(value);
    return text === null ? null : fact(name, label, value, text);
  });
}

/**
 * Return whether the bytes of a GPU event probably came from memory, see `from_memory` in analysis/kernel_peaks.py.
 * @param {DetailedEvent} event
 * @param {Row | undefined} device
 */
function fromMemory(event, device) {
  if (!device?.memory_gb_s || event.bytes < 0) return false;
  const cache = device.cache_bytes ?? 0,
    passes = event.dur * device.memory_gb_s;
  const helped = cache > 0 && event.dur > 0 && event.bytes > passes && event.bytes - 2 * cache <= passes;
  return event.bytes > cache && !helped;
}

/**
 * Facts of a GPU event; `operator` is the innermost call that launched it, null if unknown.
 * @param {DetailedEvent} event
 * @param {Texts} texts
 * @param {Pick<Lane, "device" | "stream">} lane
 * @param {DetailedEvent | null} operator
 * @param {Record<string, Row>} devices
 */
export function deviceFacts(event, texts, lane, operator, devices) {
  const device = devices[lane.device ?? -1],
    dtype = texts.dtypes[event.dtype],
    rate = event.flops >= 0 && event.dur ? (event.flops / event.dur) * 1e9 : null,
    moved = event.bytes >= 0 && event.dur ? (event.bytes / event.dur) * 1e9 : null,
    peak = device?.peaks?.[dtype] ?? null,
    wide = fromMemory(event, device) ? device.memory_gb_s * 1e9 : null,
    ranged = event.most_bytes > event.bytes,
    modules = operator ? regions(texts, operator.path) : [];
  return known([
    fact("category", "Category", texts.categories[event.category]),
    operator ? fact("operator", "Operator", operator.full) : null,
    ...(operator ? signatureFacts(texts.signatures[operator.signature]) : []),
    modules.length ? fact("modules", "Modules", modules, modules.join(" / ")) : null,
    ...originFacts(event, texts, modules),
    time("delay", "Launch delay", event.delay),
    fact("device", "Device", lane.device),
    fact("stream", "Stream", lane.stream),
    ...generatedFacts(texts.generated[event.generated]),
    ...launchFacts(texts.configs[event.config] ?? {}),
    event.flops >= 0 ? amount("flops", "FLOPs", event.flops, "flop") : null,
    rate === null ? null : amount("flops_per_second", "Achieved", rate, "flop/s"),
    rate === null || !peak ? null : peakShare("flops_share", `Share of the ${dtype} peak`, rate / peak),
    event.bytes >= 0 ? amount("bytes", ranged ? "Bytes, at least" : "Bytes", event.bytes, "bytes") : null,
    ranged ? amount("most_bytes", "Bytes, at most", event.most_bytes, "bytes") : null,
    moved === null ? null : amount("bytes_per_second", "Bandwidth", moved, "bytes/s"),
    moved === null || !wide ? null : peakShare("bytes_share", "Share of the bandwidth", moved / wide),
    ...commFacts(texts.comms[event.comm] ?? {}),
    fact("correlation", "Correlation", event.correlation),
    fact("id", "Node id", event.id),
    fact("kineto_event", "Kineto event", event.kineto_event),
    event.step >= 0 ? fact("step", "Step", texts.steps[event.step]) : null,
    event.reason > 0 ? fact("reason", "Not attached", texts.reasons[event.reason]) : null,
    event.repeated >= 0
      ? fact("repeated", "Operator, inferred from a later step", texts.repeated[event.repeated])
      : null,
    ...linkFacts(texts, event.link, " (operator)"),
    ...capturedFacts(event, texts),
  ]);
}

/**
 * Facts that the compiler recorded about a generated kernel; none for other events.
 * @param {Row | undefined} kernel
 * @returns {(Fact | null)[]}
 */
function generatedFacts(kernel) {
  if (!kernel) return [];
  const { region, backward, handle, nodes = [], lines } = kernel,
    part = region ? `${region}${backward ? ", backward" : ""}${handle === undefined ? "" : `, call ${handle}`}` : "";
  return [
    fact("generated", "Compiled as", kernel.name),
    part ? fact("region", "Compiled region", part) : null,
    nodes.length ? fact("nodes", nodes.length > 1 ? "Fused from" : "Compiled from", nodes, nodes.join(", ")) : null,
    lines.length > 1 ? fact("lines", "Source lines (fused)", lines, lines.join("; ")) : null,
    kernel.kernel_file ? fact("kernel_file", "Kernel file", kernel.kernel_file) : null,
    kernel.kernel_hash ? fact("kernel_hash", "Kernel hash", kernel.kernel_hash) : null,
    kernel.kernel_kwargs ? fact("kernel_kwargs", "Kernel constants", kernel.kernel_kwargs) : null,
  ];
}

/**
 * The captured call of an event in a replayed graph.
 * @param {DetailedEvent} event
 * @param {Texts} texts
 */
function capturedFacts(event, texts) {
  const one = texts.captured[event.captured];
  if (!one) return [];
  const replay = texts.replays[event.replay],
    graph = texts.graphs[replay?.graph],
    inputs = shapesText(one.shapes, one.dtypes);
  return [
    fact("captured_by", "Captured by", one.name),
    inputs ? fact("captured_shapes", "Captured inputs", one.shapes, inputs) : null,
    one.modules.length ? fact("captured_modules", "Captured in", one.modules, one.modules.join(" / ")) : null,
    fact("captured_link", "Link to the capture", texts.links[event.captured_link]),
    replay?.evidence.length
      ? fact("captured_evidence", "Evidence for the graph", replay.evidence, replay.evidence.join(", "))
      : null,
    replay?.candidates > 1 ? fact("candidates", "Graphs that fit equally well", replay.candidates) : null,
    graph ? fact("graph", "Graph", graph.index, graphText(graph)) : null,
  ];
}

/** @param {Row} graph */
function graphText({ index, file, batch_size }) {
  return `${index} of ${file}${batch_size === null ? "" : `, batch size ${batch_size}`}`;
}
