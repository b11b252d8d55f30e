/* O */

import { leftOut, section } from "../layout.js";
import { classesOf, moduleClass } from "../names.js";
import { col, tableCard } from "../table.js";
import { regions } from "../timeline/facts.js";

const DEVICE_SELF_HINT = "GPU events launched with nothing of this table between";

const SELF_COLUMNS = [
  col.count("count", "Calls"),
  col.ns("self_ns", "Host self", { like: "total_ns", hint: "On the host, without the calls inside" }),
  col.ns("total_ns", "Host total", { hint: "On the host, with the calls inside" }),
  col.ns("device_self_ns", "GPU self", { like: "device_total_ns", hint: DEVICE_SELF_HINT }),
  col.ns("device_total_ns", "GPU total", { hint: "With the GPU events launched inside" }),
];

/** @type {Section} */
export function operatorsSection(report, rank) {
  const { operators, modules } = rank.analysis;
  if (!operators.length && !modules.length) return null;
  const device = operators.some((row) => row.device_total_ns);
  const columns = SELF_COLUMNS.filter((column) => device || !column.key.startsWith("device"));
  const hint = "GPU events of backward whose forward operator is inside",
    backward = device ? col.ns("backward_total_ns", "Backward", { like: "device_total_ns", hint }) : null;
  return section(
    "operators",
    "Operators and modules",
    "Self is without what runs inside, total with it; an operator inside one of the same name counts once.",
    tableCard(
      "By operator",
      leftOut(rank, "operators"),
      [col.code("op", "Operator"), col.text("shapes", "Shapes"), ...columns, col.count("launches", "GPU events")],
      operators,
      { sort: device ? "device_self_ns" : "self_ns", name: "operators", jump: ({ op }) => ({ gpu: false, name: op }) },
    ),
    tableCard(
      "By module class",
      leftOut(rank, "modules") ?? "modules of one class at one place in one row",
      [col.code("module", "Module or annotation", { indent: "depth" }), ...columns, backward, col.text("path", "In", { front: true })],
      modules,
      { sort: "", name: "modules", jump: modulePlace },
    ),
  );
}

/**
 * Of a row its longest call; of modules that are known by stacks alone the longest device event inside, without any the
 * longest operator.
 * @type {PlaceOf}
 */
function modulePlace({ path, device_total_ns }) {
  const last = path.split(" / ").at(-1),
    ofPath = new Map(), // by path and name whether a call is such a module
    ofModule = new Map(); // by module whether it is one, or inside one
  const isOne = (/** @type {Texts} */ texts, /** @type {number} */ at, /** @type {string} */ name) => {
    const around = classesOf(regions(texts, at));
    return (around === path && moduleClass(name) === last) || (around ? `${around} / ${moduleClass(name)}` : moduleClass(name)) === path;
  };
  const isInside = (/** @type {Texts} */ texts, /** @type {number} */ module) => `${classesOf((texts.modules[module] ?? "").split(" / "))} / `.startsWith(`${path} / `);
  const kept = (/** @type {Map<unknown, boolean>} */ map, /** @type {unknown} */ key, /** @type {() => boolean} */ find) => {
    const found = map.get(key) ?? find();
    map.set(key, found);
    return found;
  };
  return {
    gpu: false,
    has: ({ path: at }, i, texts, name) =>
      kept(ofPath, `${at[i]} ${name}`, () => isOne(texts, at[i], texts.names[name])),
    orElse: {
      gpu: device_total_ns > 0,
      has: ({ module }, i, texts) => kept(ofModule, module[i], () => isInside(texts, module[i])),
    },
  };
}
