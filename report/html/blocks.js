/* What the timeline draws with: runs of blocks, colours of texts. */

/** Runs of blocks of one lane and depth; blocks come sorted by lane, depth, start. */
function rowsOf({ lane, depth, ts }) {
  const rows = [];
  for (let i = 0; i < ts.length; i++) {
    const last = rows[rows.length - 1];
    if (last && last.lane === lane[i] && last.depth === depth[i]) last.end = i + 1;
    else rows.push({ lane: lane[i], depth: depth[i], begin: i, end: i + 1 });
  }
  return rows;
}

/** The strip above the timeline, and moving by dragging. */
function zoomOf(startValue, endValue) {
  return [
    {
      type: "inside",
      filterMode: "none",
      zoomLock: true, // it moves only: zooming, it would keep every turn of the wheel from the page
      startValue,
      endValue,
      minValueSpan: LEAST_VIEW_NS,
    },
    {
      type: "slider",
      filterMode: "none",
      top: 2,
      height: 22,
      left: 4,
      right: 4,
      startValue,
      endValue,
      brushSelect: false,
      showDetail: false,
      borderColor: "transparent",
      backgroundColor: Theme.value("sunk"),
      fillerColor: `${Theme.colour(0)}33`,
      dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { color: Theme.value("faint"), opacity: 0.6 } },
      selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { color: Theme.colour(0), opacity: 0.8 } },
      handleStyle: { borderColor: Theme.colour(0), color: Theme.value("card") },
      moveHandleSize: 0,
    },
  ];
}

/** Of each block the number of its first event; blocks follow one another as events do. */
function numbersOf(count) {
  let next = 0;
  return count.map((events) => (next += events) - events);
}

/** First block of a row that ends after a time; ends ascend within a row. */
function firstEnding(ts, dur, low, high, time) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ts[middle] + dur[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

const INKS = ["#10151c", "#ffffff"];

/** Dark or light text, whichever has the higher contrast to a colour (WCAG 2: at least 4.6 on all of the palette). */
function ink(colour) {
  const contrast = (text) => {
    const [low, high] = [luminance(text), luminance(colour)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  return contrast(INKS[0]) >= contrast(INKS[1]) ? INKS[0] : INKS[1];
}

/** Relative luminance of "#rrggbb" (WCAG 2), 0 to 1. */
function luminance(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const part = parseInt(colour.slice(i, i + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
