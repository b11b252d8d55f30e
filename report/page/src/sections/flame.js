/* Host time as a flame graph: each box stands for all calls with the same name and caller, and is as wide as their time. */

import { drawnWithCharts, legend } from "../chart.js";
import { el, stepped } from "../dom.js";
import { card, section } from "../layout.js";
import { bare } from "../names.js";
import { backgroundOf, ink, Theme } from "../theme.js";
import { integers, numberOf, show } from "../units.js";

const FLAME_ROW = 20;
const FLAME_LEAST_PX = 2;
const FLAME_THREAD = 3;

const FLAME_KINDS = [
    { name: "Operator", color: 0 },
    { name: "Annotation and module", color: 10 },
    { name: "Runtime call", color: 9 },
    { name: "Thread", color: 8 },
    { name: "Python function", color: 1 },
];

/**
 * The nodes of a rank's flame graph as objects: {name, kind, count, total, own, parent, children, level, at}.
 * @param {FlameColumns} columns
 * @returns {FlameNode}
 */
function flameNodes({ names, name, parent, kind, count, total }) {
  /** @type {FlameNode} */
  const root = { name: "All threads", kind: FLAME_THREAD, count: 0, total: 0, own: 0, parent: null, children: [], level: 0 };
  /** @type {FlameNode[]} */
  const nodes = [];
  name.forEach((code, at) => {
    const caller = parent[at] < 0 ? root : nodes[parent[at]],
      time = { count: count[at], total: total[at], own: total[at] },
      node = { name: names[code], kind: kind[at], ...time, parent: caller, children: [], level: caller.level + 1 };
    nodes.push(node);
    caller.children.push(node);
    caller.own -= node.total;
  });
  root.total = root.children.reduce((sum, node) => sum + node.total, 0);
  root.own = 0;
  return root;
}

class Flame {
  /** @param {FlameColumns} data */
  constructor(data) {
    this.root = flameNodes(data);
    this.shown = this.current = this.root.children.length === 1 ? this.root.children[0] : this.root;
    this.text = "";
    this.at = -1;
    this.width = 0;
    /** @type {FlameNode[]} */
    this.hits = [];
    this.boxes = el("div", { class: "flame", role: "tree", "aria-label": "CPU time by call tree" });
    this.picked = el("div", { class: "picked", role: "status" });
    this.said = el("span", { class: "said", role: "status" });
    this.input = el("input", {
      type: "search",
      placeholder: "Search names…",
      "aria-label": "Search the flame graph",
      oninput: () => this.search(this.input.value),
      onkeydown: (/** @type {KeyboardEvent} */ event) => stepped(event, this.at, this.hits.length, (at) => this.go(at)),
    });
    this.node = el(
      "div",
      {},
      el(
        "div",
        { class: "tools" },
        this.input,
        this.said,
        el("button", { type: "button", class: "push", onclick: () => this.zoom(this.root) }, "Whole"),
      ),
      this.boxes,
      this.picked,
    );
    this.boxes.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    new ResizeObserver(() => this.width !== this.boxes.clientWidth && this.draw()).observe(this.boxes);
  }

  /** Search for a text, and go from hit to hit, longest first. @param {string} text */
  search(text) {
    this.text = text.toLowerCase();
    this.hits = [];
    const visit = (/** @type {FlameNode} */ node) => {
      if (node.name.toLowerCase().includes(this.text)) this.hits.push(node);
      node.children.forEach(visit);
    };
    if (this.text) this.root.children.forEach(visit);
    this.hits.sort((a, b) => b.total - a.total);
    this.at = -1;
    this.said.textContent = this.text ? `${integers.format(this.hits.length)} places` : "";
    this.draw();
  }

  /** @param {number} at */
  go(at) {
    this.at = at;
    this.current = this.hits[at];
    const { current } = this;
    this.zoom(current.children.length || !current.parent ? current : current.parent);
    this.said.textContent = `${this.at + 1} of ${integers.format(this.hits.length)} places`;
  }

  /** Zoom a node to the full width; its callers stay above. @param {FlameNode} node */
  zoom(node) {
    this.shown = node;
    if (!this.visible(this.current)) this.current = node;
    this.draw();
  }

  /** @param {FlameNode} node */
  visible(node) {
    for (let one = /** @type {FlameNode | null} */ (node); one; one = one.parent) if (one === this.shown) return true;
    for (let one = /** @type {FlameNode | null} */ (this.shown); one; one = one.parent) if (one === node) return true;
    return false;
  }

  draw() {
    this.width = this.boxes.clientWidth;
    const boxes = [],
      callers = [];
    for (let node = this.shown.parent; node; node = node.parent) callers.unshift(node);
    for (const node of callers) boxes.push(this.box(node, 0, this.width));
    let deepest = this.shown.level;
    const visit = (/** @type {FlameNode} */ node, /** @type {number} */ left, /** @type {number} */ width) => {
      boxes.push(this.box(node, left, width));
      deepest = Math.max(deepest, node.level);
      for (const child of node.children) {
        const room = (child.total / (node.total || 1)) * width;
        if (room >= FLAME_LEAST_PX) visit(child, left, room);
        left += room;
      }
    };
    visit(this.shown, 0, this.width);
    this.boxes.style.height = `${(deepest + 1) * FLAME_ROW}px`;
    this.boxes.replaceChildren(...boxes);
    this.announce(this.current);
  }

  /** @param {FlameNode} node @param {number} left @param {number} width */
  box(node, left, width) {
    const faded = this.text && !this.hits.includes(node);
    const box = el(
      "div",
      {
        class: `box${faded ? " faded" : ""}${node === this.current ? " at" : ""}`,
        role: "treeitem",
        tabindex: node === this.current ? 0 : -1,
        "aria-level": node.level + 1,
        "aria-label": this.describe(node),
        title: this.describe(node),
        onclick: () => this.pick(node, true),
        onfocus: () => this.announce(node),
        "--look": backgroundOf(FLAME_KINDS[node.kind].color),
        "--ink": ink(Theme.color(FLAME_KINDS[node.kind].color)),
      },
      width > 24 ? bare(node.name) : "",
    );
    box.style.left = `${left}px`;
    box.style.width = `${Math.max(1, width - 1)}px`;
    box.style.top = `${node.level * FLAME_ROW}px`;
    node.box = box;
    return box;
  }

  /** @param {FlameNode} node */
  describe(node) {
    const of = show(node.total / (this.root.total || 1), "share");
    const more =
      node.kind === FLAME_THREAD ? "" : `, ${show(node.own, "ns")} itself, ${numberOf(node.count, "call")}`;
    return `${node.name}: ${show(node.total, "ns")} (${of})${more}`;
  }

  /** @param {FlameNode} node */
  announce(node) {
    const path = [];
    for (let one = node.parent; one && one.parent; one = one.parent) path.unshift(bare(one.name));
    this.picked.replaceChildren(
      el("code", {}, bare(node.name)),
      ` ${this.describe(node).slice(node.name.length + 1)}`,
      path.length ? ` · in ${path.join(" › ")}` : "",
    );
  }

  /** @param {FlameNode} node @param {boolean} zoom */
  pick(node, zoom) {
    this.current = node;
    if (zoom) this.zoom(node);
    else this.draw();
    node.box?.focus({ preventScroll: true });
    node.box?.scrollIntoView({ block: "nearest" });
  }

  /**
   * Keys: down to the longest callee, up to the caller, left and right to the neighbors, Enter to zoom.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const node = this.current,
      siblings = node.parent?.children.filter((one) => one.box?.isConnected) ?? [node];
    const to = {
      ArrowDown: () => node.children.find((one) => one.box?.isConnected),
      ArrowUp: () => node.parent,
      ArrowLeft: () => siblings[siblings.indexOf(node) - 1],
      ArrowRight: () => siblings[siblings.indexOf(node) + 1],
      Home: () => this.root,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.pick(node, true);
    else if (event.key === "Escape") this.zoom(this.root);
    else if (to) {
      const next = to();
      if (next) this.pick(next, !this.visible(next));
    } else return;
    event.preventDefault();
  }
}

/** @type {Section} */
export function flameSection(report, rank) {
  if (!rank.flame.name.length) return null;
  const flame = new Flame(rank.flame),
    left = rank.flame.left_out,
    more = left ? el("span", {}, `${integers.format(left)} smaller boxes not shown`) : null;
  drawnWithCharts(flame);
  return section(
    "flame",
    "CPU time",
    "Call tree per thread. Each box combines all calls with the same name and caller; its width is their total time. Click or press Enter to zoom in; arrow keys move.",
    card(null, null, legend(FLAME_KINDS.filter((_, at) => rank.flame.kind.includes(at)), { more }), flame.node),
  );
}
