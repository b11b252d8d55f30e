/* The colors of the page: contrast of the text on them, and how they differ without hue. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { INKS, PALETTE, PATTERNS, ink, luminance } from "../src/theme.js";

/** Least distance in lightness (CIE L*, 0 to 100) of two colors of one pattern; a step of 1 is visible side by side. */
const LEAST = 10;

/** Linear RGB as seen: Machado, Oliveira and Fernandes 2009, severity 1; luminance of sRGB. */
const SEEN = {
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  grayscale: [[0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722]],
};

function lightness(color, rows) {
  const linear = [1, 3, 5].map((at) => {
    const part = parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const [red, green, blue] = rows.map((row) =>
    Math.min(1, Math.max(0, row.reduce((sum, weight, at) => sum + weight * linear[at], 0))),
  );
  const y = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
}

test("any two colors differ in pattern or lightness", () => {
  for (const [theme, colors] of Object.entries(PALETTE)) {
    assert.equal(colors.length, PATTERNS.length);
    let pairs = 0;
    for (const [seen, rows] of Object.entries(SEEN))
      for (let a = 0; a < colors.length; a++)
        for (let b = 0; b < a; b++) {
          if (PATTERNS[a] !== PATTERNS[b]) continue;
          pairs += 1;
          const distance = Math.abs(lightness(colors[a], rows) - lightness(colors[b], rows));
          assert.ok(distance >= LEAST, `${theme}, ${seen}: ${colors[a]} and ${colors[b]} differ by ${distance}`);
        }
    assert.ok(pairs > 3 * 8);
  }
});

test("text on every color of the palette has a contrast of 4.5", () => {
  assert.deepEqual([...INKS].sort(), ["#10151c", "#ffffff"]);
  for (const color of [...PALETTE.light, ...PALETTE.dark]) {
    const [low, high] = [luminance(ink(color)), luminance(color)].sort((a, b) => a - b);
    assert.ok((high + 0.05) / (low + 0.05) >= 4.5, color);
  }
});
