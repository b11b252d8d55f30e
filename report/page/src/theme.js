/* Colors of the light and the dark theme, and the patterns that tell them apart without hue. */

import { el } from "./dom.js";

export const PALETTE = {
  light: [
    "#2f52bd", "#dfa01e", "#cc3a32", "#40b8ae", "#388f45", "#dc6aa5", "#7a3fc4", "#9cc6fa",
    "#845c3e", "#8d96a3", "#ccd5e6",
  ],
  dark: [
    "#5579ee", "#f7cc62", "#ee5f54", "#6fdccf", "#5ab566", "#e276b1", "#8650dc", "#a9ccff",
    "#a5774f", "#a0abb8", "#47546e",
  ],
};

/** Pattern of each palette color: 0 plain, 1 slanted lines, 2 dots, 3 level lines. */
export const PATTERNS = [0, 0, 1, 1, 0, 2, 2, 2, 3, 3, 0];

const PATTERN_PX = 6;

/** @type {Record<number, [number, number, number, number][]>} */
const MARKS = {
  1: [[0, 4, 2, 2], [2, 2, 2, 2], [4, 0, 2, 2]],
  2: [[1, 1, 2, 2], [4, 4, 2, 2]],
  3: [[0, 2, 6, 2]],
}; // x, y, width and height in a square of PATTERN_PX

export const SYMBOLS = ["circle", "triangle", "diamond", "rect"]; // shapes of points, by pattern

export const DASHES = ["solid", "dashed", "dotted", [9, 3, 2, 3]]; // styles of lines, by pattern

export const Theme = {
  choice: /** @type {"auto" | "light" | "dark"} */ ("auto"),
  system: globalThis.matchMedia?.("(prefers-color-scheme: dark)"),
  paper: false,
  /** @returns {"light" | "dark"} */
  get name() {
    if (this.paper) return "light";
    return this.choice === "auto" ? (this.system.matches ? "dark" : "light") : this.choice;
  },
  /** A color by its index in the palette, or by its name in the style sheet. @param {Color} which */
  color(which) {
    const colors = PALETTE[this.name];
    return typeof which === "string" ? this.value(which) : colors[which % colors.length];
  },
  /** A property of the style sheet. @param {string} name */
  value(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },
  apply() {
    document.documentElement.dataset.theme = this.name;
    setLook();
  },
};

/** @param {Color} color */
export const patternOf = (color) => (typeof color === "string" ? 0 : PATTERNS[color % PATTERNS.length]);

export const INKS = ["#10151c", "#ffffff"];

/**
 * Dark or light text color, whichever contrasts more with a color (WCAG 2: at least 4.6 for the whole palette).
 * @param {string} color
 */
export function ink(color) {
  const contrast = (/** @type {string} */ text) => {
    const [low, high] = [luminance(text), luminance(color)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  return contrast(INKS[0]) >= contrast(INKS[1]) ? INKS[0] : INKS[1];
}

/** Relative luminance of "#rrggbb" (WCAG 2), 0 to 1. @param {string} color */
export function luminance(color) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const part = parseInt(color.slice(i, i + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Pale color of a pattern on a color: the opposite of the text color. @param {string} color */
const markOf = (color) => (ink(color) === INKS[0] ? "rgb(255 255 255 / 45%)" : "rgb(0 0 0 / 28%)");

const squares = new Map(); // canvas of a square tile, by color and pattern

/** A square tile of a color with its pattern. @param {string} color @param {number} pattern */
function square(color, pattern) {
  const key = `${color} ${pattern}`;
  if (!squares.has(key)) {
    const canvas = el("canvas", { width: PATTERN_PX, height: PATTERN_PX }),
      pen = canvas.getContext("2d");
    pen.fillStyle = color;
    pen.fillRect(0, 0, PATTERN_PX, PATTERN_PX);
    pen.fillStyle = markOf(color);
    for (const mark of MARKS[pattern]) pen.fillRect(...mark);
    squares.set(key, canvas);
  }
  return squares.get(key);
}

/** Fill of a chart area: a color (see `Theme.color`) with its pattern. @param {Color} color */
export function fillOf(color) {
  const plain = Theme.color(color),
    pattern = patternOf(color);
  return pattern ? { image: square(plain, pattern), repeat: "repeat" } : plain;
}

/** Fill of a canvas area. @param {CanvasRenderingContext2D} pen @param {Color} color */
export function penFillOf(pen, color) {
  const plain = Theme.color(color),
    pattern = patternOf(color);
  return pattern ? (pen.createPattern(square(plain, pattern), "repeat") ?? plain) : plain;
}

/** The patterns as CSS backgrounds, in the color of the marks. */
/** @type {Record<number, (mark: string) => string>} */
const GRADIENTS = {
  1: (mark) => `repeating-linear-gradient(135deg, transparent 0 2px, ${mark} 2px 4px)`,
  2: (mark) => `radial-gradient(${mark} 1.2px, transparent 1.4px) 0 0 / 4px 4px`,
  3: (mark) => `repeating-linear-gradient(transparent 0 2px, ${mark} 2px 4px)`,
};

/** Fill as CSS, from the document properties `--pattern-N` and `--color-N`. @param {Color} color */
export const backgroundOf = (color) =>
  typeof color === "string" ? `var(--${color})` : `var(--pattern-${color}), var(--color-${color})`;

function setLook() {
  PALETTE[Theme.name].forEach((color, at) => {
    const image = GRADIENTS[PATTERNS[at]]?.(markOf(color)) ?? "none";
    document.documentElement.style.setProperty(`--color-${at}`, color);
    document.documentElement.style.setProperty(`--pattern-${at}`, image);
  });
}
