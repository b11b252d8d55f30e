/* Names of operators, kernels and modules as the page shows them. */


const LONGEST_NAME = 400; // the timeline cuts names to this length

/** Readable names of the kernels of the shown rank, by full name. */
const kernelLabels = new Map();

/** @param {Record<string, string>} labels */
export function useKernelLabels(labels) {
  kernelLabels.clear();
  for (const [name, label] of Object.entries(labels)) {
    kernelLabels.set(name, label);
    if (name.length > LONGEST_NAME) kernelLabels.set(`${name.slice(0, LONGEST_NAME - 1)}…`, label);
  }
}

/**
 * Shorten the middle of a long name; kernels get their readable names, and modules lose "nn.Module".
 * @param {string} name
 */
export function short(name, most = 60) {
  name = bare(name);
  return name.length <= most
    ? name
    : `${name.slice(0, Math.ceil(most * 0.7))}…${name.slice(name.length - Math.floor(most * 0.3) + 1)}`;
}

/** @param {string} name */
export function bare(name) {
  return kernelLabels.get(name) ?? name.replace(/^(?:void |nn\.Module: )/, "");
}

/** A name that is cut like names in the timeline. @param {unknown} name */
export const shortenedName = (name) => {
  const text = String(name ?? "");
  return text.length > LONGEST_NAME ? `${text.slice(0, LONGEST_NAME - 1)}…` : text;
};

/* Module classes, and searching and listing names. */
/** Class of a module: its name without its number or count. @param {string} name */
export const moduleClass = (name) => name.replace(/^nn\.Module: /, "").replace(/(?:_\d+| × \d+)$/, "");

/** @param {string[]} names */
export const classesOf = (names) => names.map(moduleClass).join(" / ");

/** Return whether a name, or the readable name of a kernel, contains a text. @param {unknown} name @param {string} text */
export function fits(name, text) {
  const full = String(name ?? "");
  return full.toLowerCase().includes(text) || bare(full).toLowerCase().includes(text);
}

/** Names in order; consecutive equal names are merged: "a ×3, b". @param {string[]} names */
export function counted(names) {
  /** @type {[string, number][]} */
  const runs = [];
  for (const name of names) {
    if (runs.length && runs[runs.length - 1][0] === name) runs[runs.length - 1][1] += 1;
    else runs.push([name, 1]);
  }
  return runs.map(([name, times]) => (times > 1 ? `${name} ×${times}` : name)).join(", ");
}
