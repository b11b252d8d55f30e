/* Steps of a serving engine: phases, latency and tokens over time, and a roofline of the steps. */

import { axis, chart, legend, tip, tooltip } from "../chart.js";
import { el } from "../dom.js";
import { card, leftOut, section, sideBySide } from "../layout.js";
import { shownTime } from "../steps.js";
import { tableCard } from "../table.js";
import { fillOf, patternOf, SYMBOLS, Theme } from "../theme.js";
import { neat, plain, power, show } from "../units.js";

/** @type {Record<string, Color>} */
const PHASE_COLORS = { prefill: 1, decode: 0, mixed: 6, capture: 4, idle: "line", unknown: 9 };

const MANY_TIMES = 30; // if the largest and smallest value differ by this factor, the axis is logarithmic

/** @param {Rank} rank @param {Row} step */
const servedPlace = (rank, { start_ns, latency_ns }) => {
  const from = start_ns - rank.start_ns;
  return { from, to: from + latency_ns };
};

/** The longest step of a phase. @param {Rank} rank @param {Row[]} steps @param {string} phase */
function longestStep(rank, steps, phase) {
  const found = steps.filter((row) => row.phase === phase || phase === "all");
  return found.length ? servedPlace(rank, found.reduce((a, b) => (b.latency_ns > a.latency_ns ? b : a))) : null;
}

/** @type {Section} */
export function servingSection(_, rank) {
  const { serving_steps: steps, serving_phases: phases } = rank.analysis;
  if (!steps.length) return null;
  const present = Object.keys(PHASE_COLORS)
    .filter((name) => steps.some((row) => row.phase === name))
    .map((name) => ({ name, color: PHASE_COLORS[name] }));
  const rates = steps.filter((row) => row.tokens_per_second !== null);
  return section(
    "serving",
    "Serving",
    "A step ends with its annotation or with its last GPU event, whichever is later.",
    card("Phases over time", null, phaseBars(rank, steps, present)),
    sideBySide(
      [6, 6],
      card("Latency of steps", legendNote(steps), overTime(rank, steps, present, "latency_ns", "ns")),
      rates.length
        ? card("Tokens per second", "new tokens per step duration", overTime(rank, rates, present, "tokens_per_second", "tokens/s"))
        : null,
    ),
    stepRoofline(rank, steps, present),
    tableCard(
      "Phases",
      null,
      "serving_phases",
      phases,
      { sort: "", filter: false, jump: ({ phase }) => longestStep(rank, steps, phase) },
    ),
    tableCard(
      "Steps",
      leftOut(rank, "serving_steps"),
      "serving_steps",
      steps,
      { sort: "", jump: (row) => servedPlace(rank, row) },
    ),
  );
}

/** @param {Row[]} steps */
function legendNote(steps) {
  const behind = steps.filter((row) => row.time_ns < row.latency_ns).length;
  return behind ? `${behind} of ${steps.length} begin before the GPU has finished the previous step` : null;
}

/** @param {Rank} rank @param {Row} row */
function stepTip(rank, row) {
  const tokens = (/** @type {number} */ requests, /** @type {number} */ count) => (requests ? `${show(count, "count")} of ${show(requests, "count")} requests` : null);
  return tip(`step ${row.step}: ${row.phase}`, [
    ["at", show(row.start_ns - rank.start_ns, "ns")],
    ["latency", show(row.latency_ns, "ns")],
    ["GPU busy", show(row.device_ns, "ns")],
    ["prefill tokens", tokens(row.prefill_requests, row.prefill_tokens)],
    ["decode tokens", tokens(row.decode_requests, row.decode_tokens)],
    ["keys", row.keys === null ? null : show(row.keys, "count")],
    ["tokens/s", row.tokens_per_second === null ? null : plain(row.tokens_per_second)],
  ]);
}

/** One lane per phase, with the steps of the phase. @param {Rank} rank @param {Row[]} steps @param {Kind[]} present */
function phaseBars(rank, steps, present) {
  const node = el("div"),
    lane = new Map(present.map((phase, at) => [phase.name, at]));
  chart(node, 52 + 26 * present.length, () => ({
    grid: { left: 74, right: 24, top: 8, bottom: 30 },
    tooltip: tooltip((item) => stepTip(rank, item.data.row)),
    xAxis: axis({ type: "value", ...shownTime(rank), unit: "ns", axisLabel: { hideOverlap: true } }),
    yAxis: axis({ type: "category", data: present.map((phase) => phase.name), inverse: true }),
    dataZoom: [{ type: "inside", filterMode: "none" }],
    series: [
      {
        type: "custom",
        encode: { x: [1, 2], y: 0 },
        renderItem: (_, api) => {
          const [left, middle] = api.coord([api.value(1), api.value(0)]),
            [right] = api.coord([api.value(2), api.value(0)]);
          return {
            type: "rect",
            shape: { x: left, y: middle - 8, width: Math.max(right - left, 1), height: 16 },
            style: { fill: fillOf(present[api.value(0)].color), stroke: Theme.value("card"), lineWidth: 0.5 },
          };
        },
        data: steps.map((row) => {
          const start = row.start_ns - rank.start_ns;
          return { value: [lane.get(row.phase), start, start + row.latency_ns], row };
        }),
      },
    ],
  }));
  return node;
}

/**
 * One point per step over the time of the trace.
 * @param {Rank} rank
 * @param {Row[]} rows
 * @param {Kind[]} present
 * @param {string} key
 * @param {string} unit
 */
function overTime(rank, rows, present, key, unit) {
  const node = el("div"),
    values = rows.map((row) => row[key]).filter((value) => value > 0),
    wide = values.length > 1 && Math.max(...values) > MANY_TIMES * Math.min(...values);
  chart(node, 240, () => ({
    grid: { left: 84, right: 24, top: 14, bottom: 28 },
    tooltip: tooltip((item) => stepTip(rank, item.data.row)),
    xAxis: axis({ type: "value", ...shownTime(rank), unit: "ns", axisLabel: { hideOverlap: true } }),
    yAxis: axis({ type: wide ? "log" : "value", min: wide ? undefined : 0, unit }),
    dataZoom: [{ type: "inside", filterMode: "none" }],
    series: present.map(({ name, color }) => ({
      name,
      type: "scatter",
      symbolSize: rows.length > 200 ? 5 : 9,
      symbol: SYMBOLS[patternOf(color)],
      itemStyle: { color: Theme.color(color), opacity: 0.85 },
      data: rows
        .filter((row) => row.phase === name && (!wide || row[key] > 0))
        .map((row) => ({ value: [row.start_ns - rank.start_ns, row[key]], row })),
    })),
  }));
  return el("div", {}, node, legend(present));
}

/**
 * FLOP rate of each step during its GPU busy time, against arithmetic intensity; null if no FLOPs and bytes
 * are known.
 * @param {Rank} rank
 * @param {Row[]} steps
 * @param {Kind[]} present
 */
function stepRoofline(rank, steps, present) {
  const shown = steps.filter((row) => row.flops > 0 && row.bytes > 0 && row.device_ns > 0),
    devices = Object.values(rank.analysis.devices).filter((device) => Object.keys(device.peaks).length && device.memory_gb_s);
  if (!shown.length) return null;
  const at = (/** @type {Row} */ row) => [row.flops / row.bytes, (row.flops / row.device_ns) * 1e9],
    points = shown.map(at),
    node = el("div");
  const roofs = devices.length ? Object.entries(devices[0].peaks) : [],
    bandwidth = devices.length ? devices[0].memory_gb_s * 1e9 : 0,
    highest = Math.max(0, ...roofs.map((roof) => roof[1]));
  const decade = (/** @type {number} */ value, /** @type {(x: number) => number} */ round) => 10 ** round(Math.log10(value)),
    low = decade(Math.min(...points.map((point) => point[0])), Math.floor),
    high = decade(Math.max(...points.map((point) => point[0]), bandwidth ? (3 * highest) / bandwidth : 1), Math.ceil),
    bottom = decade(Math.min(...points.map((point) => point[1])), Math.floor),
    top = decade(Math.max(...points.map((point) => point[1]), highest) * 1.01, Math.ceil);
  chart(node, 340, () => ({
    grid: { left: 84, right: 130, top: 16, bottom: 46 },
    tooltip: tooltip((item) =>
      item.data.row
        ? tip(`step ${item.data.row.step}: ${item.data.row.phase}`, [
            ["FLOP per byte", plain(item.data.value[0])],
            ["achieved", show(item.data.value[1], "flop/s")],
            ["memory", show((item.data.row.bytes / item.data.row.device_ns) * 1e9, "bytes/s")],
            ["known work", `${show(item.data.row.known_ns / (item.data.row.events_ns || 1), "share")} of GPU time`],
          ])
        : null,
    ),
    xAxis: axis({
      type: "log", min: low, max: high, name: "FLOP per byte", nameLocation: "middle", nameGap: 28,
      axisLabel: { formatter: power },
    }),
    yAxis: axis({ type: "log", min: bottom, max: top, unit: "flop/s" }),
    series: [
      ...roofs.map(([type, roof]) => ({
        type: "line",
        symbol: "none",
        silent: true,
        lineStyle: { color: Theme.value("muted"), width: 1.5 },
        data: [[Math.max(low, bottom / bandwidth), Math.max(low * bandwidth, bottom)], [roof / bandwidth, roof], [high, roof]]
          .filter((point) => point[0] >= low),
        endLabel: { show: true, formatter: `${type} ${neat(roof, "flop/s")}`, color: Theme.value("muted"), fontSize: 11.5 },
      })),
      ...present.map(({ name, color }) => ({
        name,
        type: "scatter",
        z: 3,
        symbolSize: 11,
        symbol: SYMBOLS[patternOf(color)],
        itemStyle: { color: Theme.color(color), opacity: 0.8, borderColor: Theme.value("card"), borderWidth: 1 },
        data: shown.filter((row) => row.phase === name).map((row) => ({ value: at(row), row })),
      })),
    ],
  }));
  return card("Roofline of steps", "known FLOPs and bytes of a step, divided by its GPU busy time", legend(present), node);
}
