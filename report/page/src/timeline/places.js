/* Places in the timeline: the events of a source line, a module, or nodes of the ET+. */

import { classesOf } from "../names.js";
import { shownTimeline } from "../state.js";
import { Details } from "./details.js";

/**
 * "file:line" of the innermost line of user code of an event.
 * @param {Texts} texts
 * @param {number} entry
 * @returns {string}
 */
function lineOf(texts, entry) {
  const { stacks } = texts;
  return (entry >= 0 && stacks?.places[stacks.line[entry]]) || "";
}

/** Shapes of a signature as a label: "[8,4],[4,2]". @param {Row | undefined} signature @returns {string} */
export const shapesLabel = (signature) => signature?.shapes.map((/** @type {number[]} */ shape) => `[${shape.join(",")}]`).join(",") ?? "";

/** The call that launched a device event; a call returns itself. @param {DetailedEvent} event */
export async function callOf(event) {
  const number = event.gpu ? Details.first(event.sources, "operator") : event.number;
  return number === null ? null : shownTimeline().details.of(number);
}

/** The topmost operator around a call. @param {DetailedEvent} call */
export async function topOf(call) {
  const { data, details } = shownTimeline();
  let top = call;
  /** @type {DetailedEvent | null} */
  let at = call;
  while (at) {
    const caller = Details.first(at.sources, "caller");
    at = caller === null ? null : await details.of(caller);
    if (at && data.kinds[at.kind].name === "Operator") top = at;
  }
  return top;
}

/** @param {string} line @param {boolean} [gpu] @returns {Place} */
export const ofLine = (line, gpu) => ({ gpu, has: (columns, i, texts) => lineOf(texts, columns.entry[i]) === line });

/**
 * The events of a module, or of any of several modules ("Layer × 12").
 * @param {string} module
 * @returns {Place}
 */
export function ofModule(module) {
  const folded = / × \d+/.test(module) ? classesOf(module.split(" / ")) : null;
  return {
    has: ({ module: at }, i, texts) => {
      const own = texts.modules[at[i]] ?? "";
      return folded === null ? own === module : classesOf(own.split(" / ")) === folded;
    },
  };
}

/** The events of ET+ nodes, by node id. @param {number[]} ids @param {boolean} [gpu] @returns {Place} */
export function ofRows(ids, gpu) {
  const wanted = new Set(ids);
  return { gpu, has: ({ id }, i) => wanted.has(id[i]) };
}
