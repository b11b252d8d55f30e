/* How colours differ without hue: each of the palette has a pattern, and those of one pattern differ in lightness. */

/** Of each colour of the palette: 0 plain, 1 slanted lines, 2 dots, 3 level lines. */
const PATTERNS = [0, 0, 1, 1, 0, 2, 2, 2, 3, 3, 0];
const PATTERN_PX = 6;
const MARKS = {
  1: [[0, 4, 2, 2], [2, 2, 2, 2], [4, 0, 2, 2]],
  2: [[1, 1, 2, 2], [4, 4, 2, 2]],
  3: [[0, 2, 6, 2]],
}; // x, y, width and height in a square of PATTERN_PX
const SYMBOLS = ["circle", "triangle", "diamond", "rect"]; // of points, by pattern
const DASHES = ["solid", "dashed", "dotted", [9, 3, 2, 3]]; // of lines, by pattern

const patternOf = (colour) => (typeof colour === "string" ? 0 : PATTERNS[colour % PATTERNS.length]);

/** What is drawn over a colour: the ink that no text on it has, pale. */
const markOf = (colour) => (ink(colour) === INKS[0] ? "rgb(255 255 255 / 45%)" : "rgb(0 0 0 / 28%)");

const squares = new Map(); // colour and pattern to a canvas of one square

/** A square of a colour with its pattern, to be repeated. */
function square(colour, pattern) {
  const key = `${colour} ${pattern}`;
  if (!squares.has(key)) {
    const canvas = el("canvas", { width: PATTERN_PX, height: PATTERN_PX }),
      pen = canvas.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, PATTERN_PX, PATTERN_PX);
    pen.fillStyle = markOf(colour);
    for (const mark of MARKS[pattern]) pen.fillRect(...mark);
    squares.set(key, canvas);
  }
  return squares.get(key);
}

/** What charts fill an area with: a colour (see `Theme.colour`) with its pattern. */
function fillOf(colour) {
  const plain = Theme.colour(colour),
    pattern = patternOf(colour);
  return pattern ? { image: square(plain, pattern), repeat: "repeat" } : plain;
}

/** The same for a canvas. */
function penFillOf(pen, colour) {
  const plain = Theme.colour(colour),
    pattern = patternOf(colour);
  return pattern ? pen.createPattern(square(plain, pattern), "repeat") : plain;
}

/** The same patterns in styles, in the colour of the marks. */
const GRADIENTS = {
  1: (mark) => `repeating-linear-gradient(135deg, transparent 0 2px, ${mark} 2px 4px)`,
  2: (mark) => `radial-gradient(${mark} 1.2px, transparent 1.4px) 0 0 / 4px 4px`,
  3: (mark) => `repeating-linear-gradient(transparent 0 2px, ${mark} 2px 4px)`,
};

/** The same as a style: properties `--pattern-N` and `--colour-N` of the document. */
const backgroundOf = (colour) =>
  typeof colour === "string" ? `var(--${colour})` : `var(--pattern-${colour}), var(--colour-${colour})`;

function setLook() {
  PALETTE[Theme.name].forEach((colour, at) => {
    const image = GRADIENTS[PATTERNS[at]]?.(markOf(colour)) ?? "none";
    document.documentElement.style.setProperty(`--colour-${at}`, colour);
    document.documentElement.style.setProperty(`--pattern-${at}`, image);
  });
}
