/* The ranks of a job on one clock: streams as lanes, collectives joined across the ranks, who waits for whom. */

const RANK_LANE = 16,
  RANK_BAR = 14,
  RANK_GAP = 26, // with the rank's name
  RANK_TOP = 38,
  RANK_LEAST_NS = 100,
  RANK_KINDS = [
    { name: "Computing", colour: 4 },
    { name: "Copy", colour: 9 },
    { name: "Communication", colour: 2 },
    { name: "Host call", colour: 0 },
  ],
  WAIT = { name: "Waits for the last to arrive", colour: 1 },
  JOINED = { name: "Collective, all have come", colour: 3 };

class RankAxis {
  constructor(job, labels, iterations) {
    this.job = job;
    this.labels = labels;
    this.iterations = iterations;
    this.at = -1;
    this.tops = [];
    let y = RANK_TOP;
    for (const rank of job.ranks) {
      this.tops.push(y);
      y += rank.lanes.length * RANK_LANE + RANK_BAR + RANK_GAP;
    }
    this.height = y;
    this.canvas = el("canvas", {
      tabindex: 0,
      role: "img",
      "aria-label":
        "Ranks on one clock; keys w and s zoom, a and d move, n and p go to the next and previous collective",
    });
    this.picked = el(
      "div",
      { class: "picked", role: "status" },
      "n and p, or the buttons, go from collective to collective.",
    );
    this.hover = el("div", { class: "hover", hidden: true });
    this.build();
    this.view(0, job.span);
  }

  build() {
    const button = (text, title, act) => el("button", { type: "button", title, onclick: act }, text);
    const steps = this.iterations.length
      ? el(
          "select",
          { "aria-label": "Iteration", onchange: (event) => this.step(event.target.value) },
          el("option", { value: "" }, "All iterations"),
          this.iterations.map((one, at) => el("option", { value: at }, one.name)),
        )
      : null;
    this.steps = steps;
    const several = this.job.collectives.length > 0;
    const tools = el(
      "div",
      { class: "tools" },
      several ? button("‹ Collective", "The one before (p)", () => this.go(this.at - 1)) : null,
      several ? button("Collective ›", "The next one (n)", () => this.go(this.at + 1)) : null,
      several
        ? button("Longest wait", "The collective in which ranks wait longest together", () => this.go(this.worst()))
        : null,
      steps
        ? [
            button("‹", "The iteration before", () => this.turn(-1)),
            steps,
            button("›", "The next iteration", () => this.turn(1)),
          ]
        : null,
      el("span", { class: "push" }),
      button("+", "Zoom in (w)", () => this.zoom(0.4)),
      button("−", "Zoom out (s)", () => this.zoom(2.5)),
      button("Fit", "The whole job", () => this.view(0, this.job.span)),
    );
    const lanes = el(
      "div",
      { class: "lanes ranks" },
      this.job.ranks.map((rank, at) => {
        const node = el(
          "div",
          { class: "lane" },
          el("b", {}, this.labels[at]),
          rank.lanes.map((name) => el("i", {}, name)),
        );
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
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.grab(event));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.hover.hidden = true));
    this.canvas.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentNode);
  }

  /** Show a part of the time, ns. */
  view(from, to) {
    const length = Math.min(Math.max(to - from, RANK_LEAST_NS), this.job.span || 1);
    this.from = Math.min(Math.max(0, from), Math.max(0, this.job.span - length));
    this.to = this.from + length;
    this.canvas.dataset.view = `${this.from} ${this.to}`;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.view(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  /** Go to a collective: it fills the middle of the view. */
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
    const weight = (one) => (one.wait ?? []).reduce((sum, wait) => sum + wait, 0);
    return this.job.collectives.reduce((best, one, at, all) => (weight(one) > weight(all[best]) ? at : best), 0);
  }

  step(value) {
    const one = this.iterations[value];
    if (one) this.view(one.start, one.end);
    else this.view(0, this.job.span);
  }

  turn(by) {
    const count = this.iterations.length,
      now = this.steps.value === "" ? (by > 0 ? -1 : count) : Number(this.steps.value);
    this.steps.value = (now + by + count) % count;
    this.step(this.steps.value);
  }

  describe(one) {
    const last = one.last === null ? null : this.labels[one.last],
      waits = one.wait?.map((wait, i) => [wait, this.labels[one.members[i]]]).filter(([wait]) => wait > 0) ?? [];
    waits.sort((a, b) => b[0] - a[0]);
    this.picked.dataset.at = this.at;
    this.picked.replaceChildren(
      el("code", {}, `${one.kind}${one.bytes >= 0 ? ` ${show(one.bytes, "bytes")}` : ""}`),
      ` ${one.group ? `group ${one.group}, ` : ""}${one.members.length} ranks, ${integers.format(this.at + 1)} of ${integers.format(this.job.collectives.length)}`,
      last === null
        ? " · its ranks do not have to wait for each other"
        : ` · ${last} is the last to arrive${
            waits.length
              ? `; ${waits
                  .slice(0, 8)
                  .map(([wait, name]) => `${name} waits ${show(wait, "ns")}`)
                  .join(", ")}${waits.length > 8 ? ", …" : ""}`
              : ""
          }`,
    );
  }

  key(event) {
    const act = {
      w: () => this.zoom(0.6),
      s: () => this.zoom(1 / 0.6),
      a: () => this.view(this.from - (this.to - this.from) / 5, this.to - (this.to - this.from) / 5),
      d: () => this.view(this.from + (this.to - this.from) / 5, this.to + (this.to - this.from) / 5),
      n: () => this.go(this.at + 1),
      p: () => this.go(this.at - 1),
      Escape: () => this.view(0, this.job.span),
    }[{ ArrowLeft: "a", ArrowRight: "d", "+": "w", "-": "s" }[event.key] ?? event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), this.time(event.offsetX));
  }

  grab(event) {
    const from = this.from,
      to = this.to,
      begin = event.clientX,
      move = (moved) => {
        const by = ((begin - moved.clientX) / this.width) * (to - from);
        this.view(from + by, to + by);
      },
      end = () => {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", end);
      };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }

  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  x(time) {
    return ((time - this.from) / (this.to - this.from)) * this.width;
  }

  /** Top of a rank's bar of collectives, below its streams. */
  bar(rank) {
    return this.tops[rank] + this.job.ranks[rank].lanes.length * RANK_LANE;
  }

  /** The collective at a place of the canvas, −1 for none. */
  collectiveAt(x, y) {
    const time = this.time(x),
      slack = (2 * (this.to - this.from)) / this.width;
    return this.job.collectives.findIndex((one) =>
      one.members.some(
        (rank, i) =>
          y >= this.bar(rank) &&
          y < this.bar(rank) + RANK_BAR &&
          one.start[i] - slack <= time &&
          time <= one.end[i] + slack,
      ),
    );
  }

  click(event) {
    const at = this.collectiveAt(event.offsetX, event.offsetY);
    if (at < 0) return;
    this.at = at;
    this.draw();
    this.describe(this.job.collectives[at]);
  }

  point(event) {
    const { offsetX: x, offsetY: y } = event,
      at = this.collectiveAt(x, y);
    let content = null;
    if (at >= 0) {
      const one = this.job.collectives[at];
      content = [
        one.kind,
        one.members.map((rank, i) => [
          this.labels[rank],
          `${show(one.end[i] - one.start[i], "ns")}${one.wait ? `, waits ${show(one.wait[i], "ns")}` : ""}`,
        ]),
      ];
    } else content = this.blockAt(x, y);
    this.hover.hidden = !content;
    if (!content) return;
    this.hover.replaceChildren(tip(content[0], content[1].slice(0, 16)));
    this.hover.style.left = `${Math.min(x + 14, Math.max(0, this.width - this.hover.offsetWidth - 4))}px`;
    this.hover.style.top = `${y + 14}px`;
  }

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
          ? ["together", `${integers.format(count)} events, the longest named`]
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
      .map((one, at) => [one, at])
      .filter(([one]) => Math.min(...one.start) <= this.to && Math.max(...one.end) >= this.from);
    for (const [one, at] of shown) this.drawJoint(pen, one, at === this.at);
    for (const [one, at] of shown) this.drawBars(pen, one, at === this.at);
  }

  drawAxis(pen) {
    const length = this.to - this.from,
      rough = length / Math.max(2, this.width / 130),
      power = 10 ** Math.floor(Math.log10(rough)),
      step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    pen.font = `12px ${Theme.value("sans")}`;
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      pen.fillStyle = Theme.value("line");
      pen.fillRect(this.x(at), 0, 1, this.height);
      pen.fillStyle = Theme.value("muted");
      pen.fillText(neat(at, "ns"), this.x(at) + 4, 13);
    }
  }

  drawRank(pen, rank, place) {
    const top = this.tops[place];
    pen.fillStyle = Theme.value("line");
    pen.fillRect(0, top - RANK_GAP + 8, this.width, 1);
    for (let i = 0; i < rank.ts.length; i++) {
      const x = this.x(rank.ts[i]),
        right = this.x(rank.ts[i] + rank.dur[i]);
      if (right < 0 || x > this.width) continue;
      pen.fillStyle = Theme.colour(RANK_KINDS[rank.kind[i]].colour);
      pen.fillRect(
        Math.max(-1, x),
        top + rank.lane[i] * RANK_LANE + 1,
        Math.max(1, Math.min(right, this.width + 1) - Math.max(-1, x)),
        RANK_LANE - 3,
      );
    }
  }

  /** What joins the bars of a collective from rank to rank. */
  drawJoint(pen, one, picked) {
    pen.fillStyle = Theme.colour(JOINED.colour);
    pen.strokeStyle = picked ? Theme.value("text") : Theme.colour(JOINED.colour);
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

  drawBars(pen, one, picked) {
    one.members.forEach((rank, i) => {
      const y = this.bar(rank) + 1,
        x = this.x(one.start[i]),
        right = Math.max(x + 1, this.x(one.end[i])),
        come = one.wait ? Math.min(right, this.x(one.start[i] + one.wait[i])) : x;
      pen.fillStyle = Theme.colour(WAIT.colour);
      pen.fillRect(x, y, come - x, RANK_BAR - 3);
      pen.fillStyle = Theme.colour(JOINED.colour);
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

function ranksSection(report) {
  const job = report.job;
  if (!job) return null;
  const labels = report.ranks.map((rank) =>
      rank.rank !== null && rank.label === String(rank.rank) ? `rank\u00a0${rank.rank}` : rank.label,
    ),
    place = job.ranks[0].begin - job.ranks[0].first,
    iterations = report.ranks[0].analysis.iteration_list.map((one) => ({
      name: one.name,
      start: one.start + place,
      end: one.end + place,
    })),
    axis = new RankAxis(job, labels, iterations),
    rows = job.ranks.map((rank, at) => ({ ...rank, label: labels[at] })),
    waits = job.collectives.map((one, at) => ({
      at,
      kind: one.kind,
      group: one.group,
      bytes: one.bytes < 0 ? null : one.bytes,
      start: Math.min(...one.start),
      length: Math.max(...one.end) - Math.min(...one.start),
      waited: one.wait?.reduce((sum, wait) => sum + wait, 0) ?? null,
      longest: one.wait ? Math.max(...one.wait) : null,
      last: one.last === null ? null : labels[one.last],
    }));
  charts.add({ draw: () => axis.draw(), instance: { dispose() {}, resize: () => axis.draw() } });
  const clocks = rows.some((row) => row.offset !== null)
    ? "Clocks are set by the collectives that no rank can leave before all have come: these end at the same time."
    : "No collective joins the ranks, so their clocks are as recorded.";
  const missing = [
    job.left_out ? `${integers.format(job.left_out)} collectives with the least waiting are left out` : null,
    job.unmatched ? `${integers.format(job.unmatched)} that not all ranks of the group have alike` : null,
  ].filter(Boolean);
  return section(
    "axis",
    "Ranks on one clock",
    `Streams of all ranks, and below them the collectives, joined from rank to rank; a triangle marks the rank that came last. ${clocks}`,
    card(
      null,
      null,
      el(
        "div",
        { class: "legend" },
        [...RANK_KINDS.filter((_, at) => job.ranks.some((rank) => rank.kind.includes(at))), JOINED, WAIT].map((kind) =>
          el("span", {}, swatch(kind.colour), kind.name),
        ),
      ),
      axis.node,
    ),
    waits.length
      ? card(
          "Collectives",
          missing.join("; ") || "a click on a row shows it above",
          table(
            [
              { key: "start", title: "At", unit: "ns" },
              { key: "kind", title: "Collective", unit: "text" },
              { key: "group", title: "Group", unit: "text" },
              { key: "bytes", title: "Message", unit: "bytes" },
              {
                key: "length",
                title: "From first to last",
                unit: "ns",
                hint: "From the first rank's start to the last one's end",
              },
              { key: "waited", title: "Waited", unit: "ns", hint: "By all ranks together, for the last to arrive" },
              { key: "longest", title: "Longest wait", unit: "ns" },
              { key: "last", title: "Last to arrive", unit: "text" },
            ],
            waits,
            {
              sort: "waited",
              name: "collectives",
              click: (row) => {
                axis.node.scrollIntoView({ block: "nearest" });
                axis.go(row.at);
              },
            },
          ),
        )
      : null,
    card(
      "Who waits for whom",
      null,
      table(
        [
          { key: "label", title: "Rank", unit: "text" },
          {
            key: "collectives",
            title: "Collectives",
            unit: "count",
            hint: "Of those in which ranks wait for each other",
          },
          { key: "last", title: "Last to arrive", unit: "count" },
          { key: "caused", title: "Others waited for it", unit: "ns" },
          { key: "waited", title: "Waited itself", unit: "ns" },
          { key: "offset", title: "Clock ahead", unit: "ns", hint: "Of the lowest rank's; taken off" },
          { key: "spread", title: "Spread", unit: "ns", hint: "Median distance of single collectives from that" },
        ],
        rows,
        { sort: "caused", filter: false, name: "waits" },
      ),
    ),
  );
}
