/* The ranks of a job on one clock: streams as lanes, and below them the collectives, joined across the ranks. */

import { tip } from "../chart.js";
import { dragged, el } from "../dom.js";
import { penFillOf, Theme } from "../theme.js";
import { integers, neat, show } from "../units.js";

const RANK_LANE = 16;
const RANK_BAR = 14;
const RANK_GAP = 26; // height in px, with room for the name of the rank
const RANK_TOP = 38;
const RANK_LEAST_NS = 100;

export const RANK_KINDS = [
    { name: "Computing", color: 4 },
    { name: "Copy", color: 9 },
    { name: "Communication", color: 2 },
    { name: "CPU call", color: 0 },
];

export const WAIT = { name: "Waiting for the last rank to arrive", color: 1 };

export const JOINED = { name: "Collective, all ranks present", color: 3 };

export class RankAxis {
  /** @param {JobTimeline} job @param {string[]} labels @param {Row[]} iterations */
  constructor(job, labels, iterations) {
    this.job = job;
    this.labels = labels;
    this.iterations = iterations;
    this.at = -1;
    this.from = 0;
    this.to = job.span;
    this.width = 0;
    /** @type {number[]} */
    this.tops = [];
    let y = RANK_TOP;
    for (const rank of job.ranks) {
      this.tops.push(y);
      y += rank.lanes.length * RANK_LANE + RANK_BAR + RANK_GAP;
    }
    this.height = y;
    const label = "Ranks on one clock; keys w and s zoom, a and d move, n and p go to the next and previous collective",
      said = "Press n or p, or a button, for the next or previous collective.";
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
    this.picked = el("div", { class: "picked", role: "status" }, said);
    this.hover = el("div", { class: "hover", hidden: true });
    this.build();
    this.whole = { from: 0, to: job.span };
    this.view(0, job.span);
  }

  build() {
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) => el("button", { type: "button", title, onclick: act }, text);
    const steps = this.iterations.length
      ? el(
          "select",
          { "aria-label": "Step", onchange: (/** @type {any} */ event) => this.step(event.target.value) },
          el("option", { value: "" }, "All steps"),
          this.iterations.map((one, at) => el("option", { value: at }, one.name)),
        )
      : null;
    this.steps = steps;
    const collectives = [
      button("‹ Collective", "Previous collective (p)", () => this.go(this.at - 1)),
      button("Collective ›", "Next collective (n)", () => this.go(this.at + 1)),
      button("Longest wait", "The collective with the longest total wait", () => this.go(this.worst())),
    ];
    const turns = [
      button("‹", "Previous step", () => this.turn(-1)),
      steps,
      button("›", "Next step", () => this.turn(1)),
    ];
    const tools = el(
      "div",
      { class: "tools" },
      this.job.collectives.length ? collectives : null,
      steps ? turns : null,
      el("span", { class: "push" }),
      button("+", "Zoom in (w)", () => this.zoom(0.4)),
      button("−", "Zoom out (s)", () => this.zoom(2.5)),
      button("Fit", "Show the whole job, or the chosen step", () => this.view(this.whole.from, this.whole.to)),
    );
    const lanes = el(
      "div",
      { class: "lanes ranks" },
      this.job.ranks.map((rank, at) => {
        const streams = rank.lanes.map((name) => el("i", {}, name)),
          node = el("div", { class: "lane" }, el("b", {}, this.labels[at]), streams);
        node.style.top = `${this.tops[at] - RANK_LANE}px`;
        return node;
      }),
    );
    this.node = el(
      "div",
      {},
      tools,
      el("div", { class: "timeline" }, lanes, el("div", { class: "frame" }, this.canvas, this.hover)),
      this.picked,
    );
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => this.grab(event));
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.hover.hidden = true));
    this.canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentNode);
  }

  /** Show a part of the time, ns. @param {number} from @param {number} to */
  view(from, to) {
    const length = Math.min(Math.max(to - from, RANK_LEAST_NS), this.job.span || 1);
    this.from = Math.min(Math.max(0, from), Math.max(0, this.job.span - length));
    this.to = this.from + length;
    this.canvas.dataset.view = `${this.from} ${this.to}`;
    this.draw();
  }

  /** @param {number} factor @param {number} around */
  zoom(factor, around = (this.from + this.to) / 2) {
    this.view(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  /** Go to a collective and zoom until the collective fills the middle of the view. @param {number} at */
  go(at) {
    const all = this.job.collectives;
    if (!all.length) return;
    this.at = (at + all.length) % all.length;
    const one = all[this.at],
      from = Math.min(...one.start),
      to = Math.max(...one.end);
    this.view(from - (to - from) * 0.6, to + (to - from) * 0.6);
    this.describe(one);
  }

  worst() {
    const weight = (/** @type {Collective} */ one) => (one.wait ?? []).reduce((sum, wait) => sum + wait, 0);
    return this.job.collectives.reduce((best, one, at, all) => (weight(one) > weight(all[best]) ? at : best), 0);
  }

  /** @param {string} value */
  step(value) {
    const one = this.iterations[Number(value)];
    if (one) this.view(one.start, one.end);
    else this.view(0, this.job.span);
  }

  /** @param {number} by */
  turn(by) {
    const count = this.iterations.length,
      now = this.steps.value === "" ? (by > 0 ? -1 : count) : Number(this.steps.value);
    this.steps.value = (now + by + count) % count;
    this.step(this.steps.value);
  }

  /** @param {Collective} one */
  describe(one) {
    const waits = (one.wait ?? []).map((wait, i) => ({ wait, name: this.labels[one.members[i]] })).filter(({ wait }) => wait > 0);
    waits.sort((a, b) => b.wait - a.wait);
    const texts = waits.slice(0, 8).map(({ wait, name }) => `${name} waits ${show(wait, "ns")}`),
      waiting = texts.length ? `; ${texts.join(", ")}${waits.length > texts.length ? ", …" : ""}` : "";
    const of = `${integers.format(this.at + 1)} of ${integers.format(this.job.collectives.length)}`;
    this.picked.dataset.at = this.at;
    this.picked.replaceChildren(
      el("code", {}, `${one.kind}${one.bytes >= 0 ? ` ${show(one.bytes, "bytes")}` : ""}`),
      ` ${one.group ? `group ${one.group}, ` : ""}${one.members.length} ranks, ${of}`,
      one.last === null
        ? " · its ranks do not have to wait for each other"
        : ` · ${this.labels[one.last]} is the last to arrive${waiting}`,
    );
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = (this.to - this.from) / 5;
    const act = {
      w: () => this.zoom(0.6),
      s: () => this.zoom(1 / 0.6),
      a: () => this.view(this.from - by, this.to - by),
      d: () => this.view(this.from + by, this.to + by),
      n: () => this.go(this.at + 1),
      p: () => this.go(this.at - 1),
      Escape: () => this.view(0, this.job.span),
    }[{ ArrowLeft: "a", ArrowRight: "d", "+": "w", "-": "s" }[event.key] ?? event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), this.time(event.offsetX));
  }

  /** @param {PointerEvent} event */
  grab(event) {
    const { from, to } = this;
    dragged((moved) => {
      const by = ((event.clientX - moved.clientX) / this.width) * (to - from);
      this.view(from + by, to + by);
    });
  }

  /** @param {number} x */
  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  /** @param {number} time */
  x(time) {
    return ((time - this.from) / (this.to - this.from)) * this.width;
  }

  /** Top of a rank's bar of collectives, below its streams. @param {number} rank */
  bar(rank) {
    return this.tops[rank] + this.job.ranks[rank].lanes.length * RANK_LANE;
  }

  /** The collective at a position of the canvas, −1 for none. @param {number} x @param {number} y */
  collectiveAt(x, y) {
    const time = this.time(x),
      slack = (2 * (this.to - this.from)) / this.width;
    const hit = (/** @type {Collective} */ one, /** @type {number} */ top, /** @type {number} */ i) =>
      y >= top && y < top + RANK_BAR && one.start[i] - slack <= time && time <= one.end[i] + slack;
    return this.job.collectives.findIndex((one) => one.members.some((rank, i) => hit(one, this.bar(rank), i)));
  }

  /** @param {MouseEvent} event */
  click(event) {
    const at = this.collectiveAt(event.offsetX, event.offsetY);
    if (at < 0) return;
    this.at = at;
    this.draw();
    this.describe(this.job.collectives[at]);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const { offsetX: x, offsetY: y } = event,
      at = this.collectiveAt(x, y);
    const content = at >= 0 ? this.collective(this.job.collectives[at]) : this.blockAt(x, y);
    this.hover.hidden = !content;
    if (!content) return;
    this.hover.replaceChildren(tip(content[0], content[1].slice(0, 16)));
    this.hover.style.left = `${Math.min(x + 14, Math.max(0, this.width - this.hover.offsetWidth - 4))}px`;
    this.hover.style.top = `${y + 14}px`;
  }

  /** @param {Collective} one @returns {[string, any[][]]} */
  collective(one) {
    const waits = (/** @type {number} */ i) => (one.wait ? `, waits ${show(one.wait[i], "ns")}` : "");
    const text = (/** @type {number} */ rank, /** @type {number} */ i) => [this.labels[rank], show(one.end[i] - one.start[i], "ns") + waits(i)];
    return [one.kind, one.members.map(text)];
  }

  /** @param {number} x @param {number} y @returns {[string, any[][]] | null} */
  blockAt(x, y) {
    const place = this.tops.findLastIndex((top) => y >= top),
      rank = this.job.ranks[place],
      lane = rank ? Math.floor((y - this.tops[place]) / RANK_LANE) : -1,
      time = this.time(x);
    if (!rank || lane < 0 || lane >= rank.lanes.length) return null;
    const at = rank.ts.findIndex((ts, i) => rank.lane[i] === lane && ts <= time && time <= ts + rank.dur[i]);
    if (at < 0) return null;
    const count = rank.count[at];
    return [
      this.job.names[rank.name[at]],
      [
        [this.labels[place], rank.lanes[lane]],
        ["time", show(rank.dur[at], "ns")],
        count > 1
          ? ["together", `${integers.format(count)} events, named after the longest`]
          : ["kind", RANK_KINDS[rank.kind[at]].name],
      ],
    ];
  }

  draw() {
    const width = this.canvas.parentNode?.clientWidth;
    if (!width) return;
    this.width = width;
    const scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    this.drawAxis(pen);
    this.job.ranks.forEach((rank, at) => this.drawRank(pen, rank, at));
    const shown = this.job.collectives
      .map((one, at) => ({ one, at }))
      .filter(({ one }) => Math.min(...one.start) <= this.to && Math.max(...one.end) >= this.from);
    for (const { one, at } of shown) this.drawJoint(pen, one, at === this.at);
    for (const { one, at } of shown) this.drawBars(pen, one, at === this.at);
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawAxis(pen) {
    const length = this.to - this.from,
      rough = length / Math.max(2, this.width / 130),
      power = 10 ** Math.floor(Math.log10(rough)),
      step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? power;
    pen.font = `12px ${Theme.value("sans")}`;
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      pen.fillStyle = Theme.value("line");
      pen.fillRect(this.x(at), 0, 1, this.height);
      pen.fillStyle = Theme.value("muted");
      pen.fillText(neat(at, "ns"), this.x(at) + 4, 13);
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {JobRank} rank @param {number} place */
  drawRank(pen, rank, place) {
    const top = this.tops[place];
    pen.fillStyle = Theme.value("line");
    pen.fillRect(0, top - RANK_GAP + 8, this.width, 1);
    const fills = RANK_KINDS.map(({ color }) => penFillOf(pen, color));
    for (let i = 0; i < rank.ts.length; i++) {
      const x = this.x(rank.ts[i]),
        right = this.x(rank.ts[i] + rank.dur[i]);
      if (right < 0 || x > this.width) continue;
      pen.fillStyle = fills[rank.kind[i]];
      pen.fillRect(
        Math.max(-1, x),
        top + rank.lane[i] * RANK_LANE + 1,
        Math.max(1, Math.min(right, this.width + 1) - Math.max(-1, x)),
        RANK_LANE - 3,
      );
    }
  }

  /**
   * Draw the lines that connect the bars of a collective from rank to rank.
   * @param {CanvasRenderingContext2D} pen
   * @param {Collective} one
   * @param {boolean} picked
   */
  drawJoint(pen, one, picked) {
    pen.fillStyle = Theme.color(JOINED.color);
    pen.strokeStyle = picked ? Theme.value("text") : Theme.color(JOINED.color);
    pen.lineWidth = picked ? 1.5 : 0.75;
    for (let i = 0; i + 1 < one.members.length; i++) {
      const upper = this.bar(one.members[i]) + RANK_BAR - 2,
        lower = this.bar(one.members[i + 1]) + 1;
      pen.globalAlpha = picked ? 0.3 : 0.14;
      pen.beginPath();
      pen.moveTo(this.x(one.start[i]), upper);
      pen.lineTo(this.x(one.end[i]), upper);
      pen.lineTo(this.x(one.end[i + 1]), lower);
      pen.lineTo(this.x(one.start[i + 1]), lower);
      pen.closePath();
      pen.fill();
      pen.globalAlpha = picked ? 1 : 0.5;
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  /** @param {CanvasRenderingContext2D} pen @param {Collective} one @param {boolean} picked */
  drawBars(pen, one, picked) {
    one.members.forEach((rank, i) => {
      const y = this.bar(rank) + 1,
        x = this.x(one.start[i]),
        right = Math.max(x + 1, this.x(one.end[i])),
        come = one.wait ? Math.min(right, this.x(one.start[i] + one.wait[i])) : x;
      pen.fillStyle = penFillOf(pen, WAIT.color);
      pen.fillRect(x, y, come - x, RANK_BAR - 3);
      pen.fillStyle = penFillOf(pen, JOINED.color);
      pen.fillRect(come, y, right - come, RANK_BAR - 3);
      if (one.last === rank) {
        pen.fillStyle = Theme.value("text");
        pen.beginPath();
        pen.moveTo(x - 5, y - 1);
        pen.lineTo(x + 5, y - 1);
        pen.lineTo(x, y + 6);
        pen.fill();
      }
      if (picked) {
        pen.strokeStyle = Theme.value("text");
        pen.lineWidth = 1.5;
        pen.strokeRect(x, y, right - x, RANK_BAR - 3);
      }
    });
  }
}
