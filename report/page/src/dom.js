/* Elements: always textContent, never innerHTML. */


/** @param {string} tag @param {Record<string, any>} attributes @param {Content[]} children @returns {any} */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(.../** @type {any} */ (children).flat(Infinity).filter((/** @type {any} */ child) => child !== null && child !== undefined));
  return node;
}

/** A note next to a heading or a number; null if there is no text. @param {string | null | undefined} text */
export const small = (text) => (text ? el("small", {}, text) : null);

/** A sentence that replaces missing data. @param {string} text */
export const none = (text) => el("p", { class: "none" }, text);

/** A list of texts; null if there are no texts. @param {string} kind @param {string[]} texts */
export function listed(kind, texts) {
  return texts.length ? el("ul", { class: kind }, texts.map((text) => el("li", {}, text))) : null;
}

/** Labels and their values. @param {(any[] | null)[]} rows */
export function factList(rows) {
  return el("dl", { class: "facts" }, rows.filter((row) => row !== null).flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));
}

/**
 * Call `move` with each pointer position while the button is down, and `up` with the last position.
 * @param {(event: PointerEvent) => void} move
 * @param {(event: PointerEvent) => void} up
 */
export function dragged(move, up = () => {}) {
  const end = (/** @type {PointerEvent} */ event) => {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    up(event);
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
}

/**
 * Handle a key of a search field: `go` to the next or previous of `count` hits. After the last hit comes the first.
 * @param {KeyboardEvent} event
 * @param {number} at
 * @param {number} count
 * @param {(at: number) => void} go
 */
export function stepped(event, at, count, go) {
  const step = { Enter: event.shiftKey ? -1 : 1, ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !count) return;
  event.preventDefault();
  go(at < 0 && step < 0 ? count - 1 : (at + step + count) % count);
}

/** Copy a text to the clipboard. If the page has no access, let the browser copy a selection. @param {string} text */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { "aria-hidden": "true", class: "away" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** @param {HTMLElement} node */
export function bringIntoView(node) {
  const { top, bottom } = node.getBoundingClientRect();
  if (top < 60 || bottom > innerHeight) node.scrollIntoView({ behavior: "instant", block: "start" });
}
