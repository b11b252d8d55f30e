/* First sections: verdict and tiles, the timeline, and facts about the trace. */

import { el, factList, listed } from "../dom.js";
import { card, section, sideBySide, tile } from "../layout.js";
import { stack } from "../stack.js";
import { page } from "../state.js";
import { Timeline } from "../timeline/timeline.js";
import { numberOf, plain, show } from "../units.js";
import { rankName, stragglerOf } from "./straggler.js";

/**
 * GPU time of a trace over all devices, split into parts that sum to the window.
 * @param {Rank} rank
 */
export function deviceParts(rank) {
  const uses = rank.analysis.device_use,
    sum = (/** @type {string} */ key) => uses.reduce((total, use) => total + use[key], 0);
  const hidden = sum("communication_ns") - sum("exposed_communication_ns");
  return {
    window: sum("window_ns"),
    busy: sum("busy_ns"),
    span: sum("gpu_span_ns"),
    hidden,
    parts: [
      { name: "Computing", color: 4, ns: sum("compute_ns") - hidden },
      { name: "Computing and communicating", color: 3, ns: hidden },
      { name: "Exposed communication", color: 2, ns: sum("exposed_communication_ns") },
      { name: "Copies alone", color: 1, ns: sum("busy_ns") - sum("compute_ns") - sum("exposed_communication_ns") },
      { name: "Idle", color: "line", ns: sum("idle_ns") },
    ],
  };
}

/**
 * Known FLOPs per second of the trace, and their share of the peaks: [FLOP/s, share].
 * @param {Rank} rank
 */
function flopRate(rank) {
  let flops = 0,
    atPeak = 0,
    known = false;
  for (const row of rank.analysis.kernels) {
    if (row.flops === null || !row.flops_per_second) continue;
    flops += row.flops;
    if (row.flops_share !== null) {
      known = true;
      atPeak += (row.flops / row.flops_per_second) * 1e9 * row.flops_share;
    }
  }
  const window = deviceParts(rank).window;
  return [flops && window ? (flops / rank.span_ns) * 1e9 : null, known && window ? atPeak / window : null];
}

/** @param {string} text */
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/**
 * The main problems in a few sentences: the straggler of a job, the idle share with its main cause, the first problem.
 * @param {Report} report
 * @param {Rank} rank
 */
export function verdict(report, rank) {
  const use = deviceParts(rank),
    idle = use.window ? 1 - use.busy / use.window : 0,
    causes = rank.analysis.idle_causes,
    sum = (/** @type {string} */ key) => causes.reduce((total, row) => total + row[key], 0),
    /** @type {[string, number][]} */ times = [
      ["before the first GPU event", sum("before_first_ns")],
      ["because launches come late", sum("host_wait_ns")],
      ["between kernels", sum("kernel_wait_ns") + sum("other_ns")],
      ["after the last GPU event", sum("after_last_ns")],
    ],
    [cause, longest] = times.reduce((a, b) => (b[1] > a[1] ? b : a)),
    late = stragglerOf(report),
    first = report.findings?.found.find((one) => one.gain || one.cost_ns !== null),
    idleText = use.window ? `GPU idle ${show(idle, "share")}${longest ? `, mostly ${cause}` : ""}` : "no GPU events";
  const texts = [
    late && `${late.name} ${late.text}`,
    report.ranks.length > 1 ? `${rankName(rank)}: ${idleText}` : idleText,
    first?.title,
  ];
  return texts.filter((text) => typeof text === "string").map(sentence).join(" ");
}

/** @type {Section} */
export function overviewSection(report, rank) {
  const { analysis } = rank,
    use = deviceParts(rank),
    [rate, ofPeak] = flopRate(rank),
    told = analysis.iterations,
    served = analysis.serving_phases.at(-1);
  const part = (/** @type {string} */ name) => (use.parts.find((one) => one.name === name)?.ns ?? 0) / (use.window || 1);
  const attributed = rank.attributed_ns / (rank.tree.total_ns || 1);
  const count = analysis.iteration_list.length,
    iterations = `${numberOf(count, "step")} of ${show(told.mean_latency_ns, "ns")}`,
    computing = part("Computing") + part("Computing and communicating"),
    exposed = use.parts[2].ns,
    all = `of ${show(use.window, "ns")}`,
    ofSpan = `${show(use.busy / (use.span || 1), "share")} from the first GPU event to the last`,
    peak = ofPeak === null ? "device peak unknown" : `${show(ofPeak, "share")} of the peak`,
    events = rank.gpu_events + rank.host_calls + rank.runtime_calls,
    links = rank.coverage;
  const tiles = [
    tile("Duration", show(rank.span_ns, "ns"), count ? iterations : "no steps marked"),
    use.window ? tile("GPU busy", show(use.busy / use.window, "share"), `${show(use.busy, "ns")} ${all}; ${ofSpan}`) : null,
    use.window ? tile("GPU computing", show(computing, "share"), "of the duration") : null,
    analysis.device_use.some((one) => one.communication_ns)
      ? tile(
          "Exposed comm.",
          show(part("Exposed communication"), "share"),
          `${show(exposed, "ns")} of ${show(use.hidden + exposed, "ns")}`,
        )
      : null,
    rate !== null ? tile("Achieved", show(rate, "flop/s"), peak) : null,
    served?.tokens_per_second
      ? tile("Tokens", `${plain(served.tokens_per_second)} /s`, servedNote(analysis.serving_phases))
      : null,
    tile("Events", show(events, "count"), `${show(rank.gpu_events, "count")} on the GPU`),
    links
      ? tile("Linked", show(links.linked / (links.total || 1), "share"), `of ${show(links.total, "count")} operators`)
      : rank.gpu_events
        ? tile("Attributed", show(attributed, "share"), "of GPU time to operators")
        : null,
  ];
  return section(
    "overview",
    "Overview",
    verdict(report, rank),
    warnings(report),
    el("div", { class: "tiles" }, tiles),
  );
}

/** @type {Section} */
export function traceSection(_report, rank) {
  const use = deviceParts(rank),
    attributed = rank.attributed_ns / (rank.tree.total_ns || 1);
  const note = `of ${show(use.window, "ns")}${rank.analysis.device_use.length > 1 ? " on all devices" : ""}`;
  return section(
    "trace",
    "Trace",
    null,
    use.window ? card("GPU time", note, stack([{ name: "", parts: use.parts, whole: use.window }])) : null,
    sideBySide([6, 6], card("File", null, facts(rank)), card("Links", null, coverage(rank, attributed))),
  );
}

/** Steps of a serving engine by phase, in words. @param {Row[]} phases */
function servedNote(phases) {
  const counts = phases.filter((row) => row.phase !== "all").map((row) => `${row.steps} ${row.phase}`);
  return `steps: ${counts.join(", ")}`;
}

/**
 * Notes on damaged inputs of all ranks: numbers from a damaged trace do not cover the whole run.
 * @param {Report} report
 */
export function warnings(report) {
  const several = report.ranks.length > 1;
  const found = [
    ...report.warnings,
    ...report.ranks.flatMap((rank) =>
      rank.analysis.damage.map((text) => (several ? `Rank ${rank.label}: ${text}` : text)),
    ),
  ];
  return listed("warnings", found);
}

/** @param {Rank} rank */
export function facts(rank) {
  const { analysis } = rank,
    rows = [["File", rank.file]];
  if (rank.rank !== null) rows.push(["Rank", String(rank.rank)]);
  for (const [number, device] of Object.entries(analysis.devices)) {
    const peaks = Object.entries(device.peaks).map(([type, peak]) => `${type} ${show(peak, "flop/s")}`);
    rows.push([
      `Device ${number}`,
      [
        device.name ?? "not named in the trace",
        device.known_as && device.known_as !== device.name ? `(${device.known_as})` : "",
        device.memory_gb_s
          ? `· peak ${[...peaks, show(device.memory_gb_s * 1e9, "bytes/s")].join(", ")}`
          : "· peaks unknown",
      ]
        .filter(Boolean)
        .join(" "),
    ]);
  }
  rows.push(
    ["Streams", String(analysis.streams.length)],
    ["Operators", show(rank.host_calls, "count")],
    [
      "Runtime calls",
      rank.runtime_calls ? `${show(rank.runtime_calls, "count")}, ${show(analysis.host.runtime_ns, "ns")}` : "0",
    ],
  );
  if (analysis.host.loading_ns) rows.push(["Data loading", show(analysis.host.loading_ns, "ns")]);
  return factList(rows);
}

/** @param {Rank} rank @param {number} attributed */
function coverage(rank, attributed) {
  const told = rank.coverage,
    notes = [...(told?.notes ?? []), ...rank.analysis.notes];
  const rows = told
    ? [
        [
          "Operators",
          `${show(told.linked, "count")} of ${show(told.total, "count")} linked (${show(told.linked / (told.total || 1), "share")}) by ${told.method}`,
        ],
        ["Certain", show(told.certain, "count")],
        [
          "Unverified",
          `${show(told.unverified, "count")}; the structure fits, but the operators may belong to another run or step`,
        ],
        [
          "GPU time",
          `${show(told.attached_ns / (told.gpu_ns || 1), "share")} of ${show(told.gpu_ns, "ns")} attached to operators`,
        ],
      ]
    : [
        ["Kind", "Kineto trace without Execution Trace"],
        rank.gpu_events ? ["GPU time", `${show(attributed, "share")} launched by operators in the trace`] : null,
      ];
  return [factList(rows), listed("notes", notes)];
}

/** @type {Section} */
export function timelineSection(report, rank) {
  if (!rank.timeline.ts.length) return null;
  const timeline = (page.timeline = new Timeline(rank.timeline, rank.analysis.devices));
  timeline.mount();
  const shortest = show(rank.timeline.resolution, "ns");
  const merged = !rank.timeline.resolution
    ? ""
    : rank.timeline.tiles
      ? ` Calls shorter than ${shortest} are merged until you zoom in.`
      : ` Calls shorter than ${shortest} are merged with their neighbors.`;
  const hidden = rank.timeline.hidden ? ` ${numberOf(rank.timeline.hidden, "lane")} with the least time ${rank.timeline.hidden === 1 ? "is" : "are"} not shown.` : "";
  return section(
    "timeline",
    "Timeline",
    `${rank.gpu_events ? "Streams on top, CPU threads with nested calls below. Pale blocks are merged short calls." : "CPU threads with nested calls. Pale blocks are merged short calls."}${merged}${hidden}`,
    card(null, null, timeline.node),
  );
}
