/* CPU and GPU time of operators and module classes. */

import { leftOut, section } from "../layout.js";
import { classesOf, moduleClass } from "../names.js";
import { tableCard } from "../table.js";
import { regions } from "../timeline/facts.js";

/** @type {Section} */
export function operatorsSection(report, rank) {
  const { operators, modules } = rank.analysis;
  if (!operators.length && !modules.length) return null;
  const device = operators.some((row) => row.device_total_ns);
  return section(
    "operators",
    "Operators and modules",
    "Self time excludes nested calls, and total time includes them. Nested calls with the same name count once.",
    tableCard(
      "By operator",
      leftOut(rank, "operators"),
      "operators",
      operators,
      { sort: device ? "device_self_ns" : "self_ns", jump: ({ op }) => ({ gpu: false, name: op }) },
    ),
    tableCard(
      "By module class",
      leftOut(rank, "modules") ?? "each row is the sum over all modules of one class in the same parent module",
      "modules",
      modules,
      { sort: "", jump: modulePlace },
    ),
  );
}

/**
 * The longest call of a row. If only stacks show the module, the longest GPU event inside it, or else the longest
 * operator.
 * @type {PlaceOf}
 */
function modulePlace({ path, device_total_ns }) {
  const last = path.split(" / ").at(-1),
    ofPath = new Map(), // caches, by path and name, whether a call belongs to a module of the row
    ofModule = new Map(); // caches, by module number, whether the module or one of its ancestors belongs to the row
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
