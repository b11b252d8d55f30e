/* Operators and module classes: time on the host and on the device. */

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
    "Self is without what runs inside, total with it; an operator inside one of the same name counts once.",
    tableCard(
      "By operator",
      leftOut(rank, "operators"),
      "operators",
      operators,
      { sort: device ? "device_self_ns" : "self_ns", jump: ({ op }) => ({ gpu: false, name: op }) },
    ),
    tableCard(
      "By module class",
      leftOut(rank, "modules") ?? "modules of one class at one place in one row",
      "modules",
      modules,
      { sort: "", jump: modulePlace },
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
