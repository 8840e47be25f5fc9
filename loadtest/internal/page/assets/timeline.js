"use strict";
// drawTimeline draws a window of critical sections (timeline.Window) into an element: on a true time axis, with a lane
// for each section that is open at the same time as another one of its replica. A window may also have marks, which are
// the steps of a fault scenario: [{at, text}]. If it has a focus, which is a time, the view begins with what happens
// around that.
const drawTimeline = (() => {
  const pad = 10, heading = 18; // pixels
  const shortest = 100; // the shortest view, in nanoseconds
  const mostBars = 700; // more than that are drawn as one shape, because so many elements would be slow
  const findingNames = {
    overlap: "overlap", lost: "lost update", twice: "repeated deduction", oversold: "sale without stock",
  };
  const flaws = {
    lost: ["✗ lost", "another sale left the same stock"], twice: ["✗ twice", "the deduction was made again"],
    oversold: ["✗ no stock", "nothing was left to sell"],
  };

  function html(name, attributes, ...children) {
    const e = document.createElement(name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    e.append(...children);
    return e;
  }

  function svg(parent, name, attributes, text) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  }

  function hatch(defs, id, name, size) {
    const pattern = svg(defs, "pattern", {
      id, class: name, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    svg(pattern, "line", {x1: 0, y1: 0, x2: 0, y2: size});
  }

  // first returns the index of the first element for which a test is true. The test must be true for all that follow.
  function first(list, test) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (test(list[middle])) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  const count = n => n.toLocaleString("en-US");
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

  // time writes nanoseconds with three digits.
  function time(ns) {
    const [unit, size] = units.find(u => Math.abs(ns) >= u[1]) || units[3];
    return Number((ns / size).toPrecision(3)) + " " + unit;
  }

  // whenShared returns when two or more critical sections were open, as disjoint intervals.
  function whenShared(sections) {
    const shared = [], bounds = [];
    for (const s of sections) if (!s.kind) bounds.push([s.start, 1], [s.end, -1]);
    bounds.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let open = 0;
    for (const [at, step] of bounds) {
      open += step;
      if (step > 0 && open === 2) shared.push({from: at, to: at});
      if (step < 0 && open === 1) shared[shared.length - 1].to = at;
    }
    return shared;
  }

  // Words for a section.
  function outcome(s) {
    return {sold_out: "sold out", unknown: "outcome unknown"}[s.outcome] || s.outcome || "sold";
  }
  function quantity(s) { return s.count || Math.abs(s.before - s.after); }
  function change(s) {
    if (s.kind === "restock") return "+" + quantity(s);
    if (s.outcome) return outcome(s);
    return s.before === undefined ? "−" + quantity(s) : `${s.before} → ${s.after}`;
  }
  function wasSold(s) {
    if (s.kind === "restock") return `Put back ${quantity(s)}.`;
    if (s.before !== undefined) return `Took ${quantity(s)}: ${s.before} before, ${s.after} after.`;
    if (s.outcome) return `Asked for ${quantity(s)}: ${outcome(s)}.`;
    return `Sold ${quantity(s)}; the answer does not say how many are left.`;
  }

  class Timeline {
    constructor(element, w) {
      this.w = w;
      this.lanes = w.lanes;
      this.sections = w.sections;
      this.findings = w.findings || [];
      this.marks = w.marks || [];
      this.shades = w.shaded || [];
      this.shared = whenShared(w.sections);
      this.id = "tl" + Math.random().toString(36).slice(2); // of the hatches
      this.edge = {from: w.from || 0, to: w.to};
      this.view = this.around(w.focus);
      this.active = -1; // the section that was selected last
      this.outlined = [];
      this.arrange();
      this.build(element);
      this.listen();
      this.draw();
    }

    // around returns the view of what happens about a time, up to the first long pause before and after it.
    around(focus) {
      const whole = this.edge.to - this.edge.from, pause = whole / 10;
      const times = [...this.sections.flatMap(s => [s.start, s.end]), ...this.marks.map(m => m.at)].sort((a, b) => a - b);
      let low = focus === undefined ? -1 : times.findIndex(at => at >= focus), high = low;
      if (low < 0) return this.edge;
      while (low > 0 && times[low] - times[low - 1] < pause) low--;
      while (high < times.length - 1 && times[high + 1] - times[high] < pause) high++;
      const margin = Math.max((times[high] - times[low]) / 20, shortest);
      const view = {
        from: Math.max(times[low] - margin, this.edge.from), to: Math.min(times[high] + margin, this.edge.to),
      };
      return view.to - view.from < whole / 2 ? view : this.edge;
    }

    // arrange places the lanes. A heading stands above the first lane of each replica.
    arrange() {
      this.top = this.marks.length ? 54 : 34;
      this.pitch = Math.max(7, Math.min(28, Math.floor(720 / this.lanes.length)));
      this.box = Math.max(4, this.pitch - 5);
      this.ys = [];
      this.headings = [];
      let y = this.top;
      this.lanes.forEach((lane, i) => {
        if (i === 0 || lane.replica !== this.lanes[i - 1].replica) {
          this.headings.push({replica: lane.replica, y});
          y += heading;
        }
        this.ys.push(y);
        y += this.pitch;
      });
      this.height = y + 8;
      this.inLane = this.lanes.map(() => []); // indexes by start, and by end as well, because they are disjoint
      this.sections.forEach((s, i) => this.inLane[s.lane].push(i));
    }

    // Elements.

    build(element) {
      const noun = this.w.requests || this.sections.some(s => s.kind) ? "requests" : "critical sections";
      this.plot = html("div", {
        class: "tl-view", tabindex: "0", role: "application", "aria-roledescription": "timeline",
        "aria-label": `${this.w.title}: ${count(this.sections.length)} ${noun}. ` +
          "Up and down select one, left and right move, plus and minus zoom.",
      });
      this.detail = html("p", {class: "tl-detail", "aria-live": "polite"},
        this.findings.length ? this.findings[0].text : "");
      const keys = html("p", {class: "tl-keys no-print"},
        "Keys: ↑ and ↓ select, ← and → move, + and − zoom, 0 shows all. Drag to move; turn the wheel with Ctrl to zoom.");
      element.replaceChildren(html("div", {class: "tl"}, html("p", {class: "tl-facts"}, this.facts(noun)),
        this.tools(), this.plot, this.detail, this.legend(), keys, this.table()));
    }

    facts(noun) {
      const w = this.w;
      const drawn = this.sections.length, omitted = w.omitted || 0;
      const parts = [w.title + (w.round ? `, round ${w.round}` : "") + ": " +
        (drawn === w.of ? "" : count(drawn) + " of ") + count(w.of) + " " + noun +
        (omitted && drawn + omitted < w.of ? `; ${count(omitted)} more of this time are not drawn.` : ".")];
      if (!w.round) return parts[0]; // the page of a fault scenario says the rest
      if (w.requests) parts.push("No critical sections are on record: a bar is a request, from sending to the answer.");
      else if (w.allowed) parts.push("Sections may overlap: the store, or a check before the write, finds conflicts.");
      else if (!this.sections.some(s => s.overlap || s.flaw)) parts.push("No two of them overlap.");
      return parts.join(" ");
    }

    tools() {
      const button = (text, label, act, extra) => {
        const b = html("button", {type: "button", class: "button" + extra, "aria-label": label, title: label}, text);
        b.addEventListener("click", act);
        return b;
      };
      const jumps = this.findings.map((f, i) => {
        const text = "Jump to the first " + findingNames[f.kind];
        return button(text, text, () => this.jump(f), i ? "" : " tl-jump");
      });
      return html("div", {class: "tl-tools no-print"}, ...jumps,
        html("div", {class: "tl-zoom", role: "group", "aria-label": "Zoom and move"},
          button("−", "Zoom out", () => this.zoom(2), ""), button("+", "Zoom in", () => this.zoom(0.5), ""),
          button("◂", "Earlier", () => this.pan(-0.4), ""), button("▸", "Later", () => this.pan(0.4), ""),
          button("Show all", "Show all of this timeline", () => this.whole(), "")));
    }

    legend() {
      const list = html("ul", {class: "tl-legend"});
      const add = (name, text, pattern) => {
        const entry = html("li", {});
        const picture = svg(entry, "svg", {width: 26, height: 14, "aria-hidden": "true"});
        const id = this.id + name.length;
        svg(picture, "rect", {class: name, x: 1, y: 1, width: 24, height: 12, rx: 3});
        if (pattern) {
          hatch(svg(picture, "defs", {}), id, pattern, 6);
          svg(picture, "rect", {fill: `url(#${id})`, x: 2, y: 2, width: 22, height: 10});
        }
        entry.append(text);
        list.append(entry);
      };
      const any = test => this.sections.some(test);
      if (any(s => !s.kind && !this.isBad(s))) add("tl-section", "critical section, units read → written");
      if (any(s => s.overlap && this.isBad(s))) add("tl-section tl-overlap", "overlaps another one", "tl-hatch");
      for (const flaw in flaws)
        if (any(s => s.flaw === flaw)) add("tl-section tl-flawed", flaws[flaw].join(": "));
      if (any(s => s.kind === "request")) add("tl-section tl-request", "request, from sending to the answer");
      if (any(s => s.kind === "restock")) add("tl-section tl-putback", "units put back");
      for (const s of this.shades) {
        const until = s.sold ? "until the next sale" : "to the end: nothing was sold any more";
        add("tl-shaded", `from “${s.text}” ${until}`, "tl-shadehatch");
      }
      add("tl-active", "selected");
      return list;
    }

    // table returns the same as text. It is filled when it is opened.
    table() {
      const box = html("details", {class: "no-print"}, html("summary", {}, "As a table"));
      const most = 500;
      box.addEventListener("toggle", () => {
        if (!box.open || box.children.length > 1) return;
        const body = html("tbody", {});
        for (const s of this.sections.slice(0, most)) {
          const remarks = [s.kind === "request" && outcome(s), s.overlap && this.isBad(s) && "overlaps", s.flaw];
          const cells = [s.request, this.lanes[s.lane].replica, time(s.start), time(s.end - s.start), change(s),
            s.token || "", remarks.filter(Boolean).join(", ")];
          body.append(html("tr", {}, ...cells.map(text => html("td", {}, String(text)))));
        }
        const heads = ["request", "replica", "from", "for", "units", "token", "remarks"];
        const head = html("tr", {}, ...heads.map(text => html("th", {scope: "col"}, text)));
        box.append(html("div", {class: "tl-table", tabindex: "0", role: "region", "aria-label": "As a table"},
          html("table", {}, html("thead", {}, head), body)));
        if (this.sections.length > most) box.append(`The first ${most} of ${count(this.sections.length)}.`);
      });
      return box;
    }

    describe(s) {
      const doing = {request: "from sending to the answer", restock: "a restock that took"}[s.kind] || "inside for";
      return [
        `${s.request} on ${this.lanes[s.lane].replica}: ${doing} ${time(s.end - s.start)}, from ${time(s.start)}.`,
        wasSold(s), s.token && `Token ${s.token}.`, s.overlap && !this.w.allowed && "It overlaps another one.",
        s.flaw && flaws[s.flaw].join(": ") + ".",
      ].filter(Boolean).join(" ");
    }

    isBad(s) { return Boolean(s.overlap && !this.w.allowed || s.flaw); }

    classesOf(s, name) {
      return [name, s.kind === "request" && "tl-request", s.kind === "restock" && "tl-putback",
        s.overlap && !this.w.allowed && "tl-overlap", s.flaw && "tl-flawed"].filter(Boolean).join(" ");
    }

    // Movements.

    x(at) { return pad + (at - this.view.from) / (this.view.to - this.view.from) * (this.width - 2 * pad); }
    timeAt(x) { return this.view.from + (x - pad) / (this.width - 2 * pad) * (this.view.to - this.view.from); }

    show(from, to) {
      const length = Math.min(this.edge.to - this.edge.from, Math.max(shortest, to - from));
      from = Math.min(Math.max(this.edge.from, (from + to - length) / 2), this.edge.to - length);
      this.view = {from, to: from + length};
      this.redraw();
    }
    whole() { this.show(this.edge.from, this.edge.to); }
    pan(share) {
      const by = share * (this.view.to - this.view.from);
      this.show(this.view.from + by, this.view.to + by);
    }
    zoom(factor, at = (this.view.from + this.view.to) / 2) {
      this.show(at + (this.view.from - at) * factor, at + (this.view.to - at) * factor);
    }

    // jump shows the sections of a finding.
    jump(f) {
      const of = f.sections.map(i => this.sections[i]);
      let from = Math.min(...of.map(s => s.start)), to = Math.max(...of.map(s => s.end));
      const widest = 8 * (f.end - f.start);
      if (f.kind === "overlap" && to - from > widest) [from, to] = [f.start, f.end]; // or it would be too thin to see
      const room = f.kind === "overlap" && to === f.end ? widest * 0.45 : (to - from) * 0.2;
      this.active = f.sections[f.sections.length - 1];
      this.outlined = f.sections;
      this.detail.textContent = f.text;
      this.show(from - room, to + room);
      this.plot.focus({preventScroll: true});
      this.reveal();
    }

    // reveal scrolls up or down, never sideways.
    reveal() {
      const left = [];
      for (let e = this.plot; e; e = e.parentElement) left.push([e, e.scrollLeft]);
      this.plot.scrollIntoView({block: "nearest", behavior: "instant"});
      for (const [e, at] of left) e.scrollLeft = at;
    }

    select(i) {
      this.outline(i);
      const s = this.sections[i], length = s.end - s.start, whole = this.view.to - this.view.from;
      if (this.x(s.end) - this.x(s.start) < 6) this.show(s.start - 4 * length, s.end + 4 * length);
      else if (s.start > this.view.to || s.end < this.view.from)
        this.show(s.start - whole * 0.1, s.start + whole * 0.9);
    }

    outline(i) {
      this.active = i;
      this.outlined = [i];
      this.detail.textContent = this.describe(this.sections[i]);
      this.redraw();
    }

    // Drawing.

    redraw() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.draw();
      });
    }

    draw() {
      this.width = Math.max(280, this.plot.clientWidth);
      const root = svg(null, "svg", {viewBox: `0 0 ${this.width} ${this.height}`, "aria-hidden": "true"});
      const defs = svg(root, "defs", {});
      hatch(defs, this.id + "o", "tl-hatch", 7);
      hatch(defs, this.id + "s", "tl-shadehatch", 9);
      for (const h of this.headings)
        svg(root, "rect", {class: "tl-group", x: 0, y: h.y, width: this.width, height: heading});
      this.drawShades(root);
      for (const h of this.headings) svg(root, "text", {class: "tl-replica", x: pad, y: h.y + 13}, h.replica);
      this.drawAxis(root);
      this.drawMarks(root);
      this.drawSections(root);
      this.drawOverlaps(root);
      this.plot.replaceChildren(root);
    }

    drawShades(root) {
      for (const s of this.shades) {
        const from = Math.max(0, this.x(s.start)), to = Math.min(this.width, this.x(s.end));
        if (to < 0 || from > this.width) continue;
        const place = {x: from, y: 18, width: Math.max(2, to - from), height: this.height - 18};
        svg(root, "rect", {class: "tl-shaded", ...place});
        svg(root, "rect", {fill: `url(#${this.id}s)`, ...place});
      }
    }

    // scale returns the distance of the ticks, and how to label them.
    scale() {
      const {from, to} = this.view;
      const [unit, size] = units.find(u => Math.max(Math.abs(from), Math.abs(to)) >= u[1]) || units[3];
      const round = raw => {
        const ten = 10 ** Math.floor(Math.log10(raw));
        return Math.max(1, ten * [1, 2, 5, 10].find(m => m * ten >= raw));
      };
      const write = (at, step) => {
        const digits = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
        return (at / size).toFixed(digits) + " " + unit;
      };
      let step = round((to - from) * 110 / this.width);
      const widest = write(to, step).length * 7 + 20;
      if (step / (to - from) * this.width < widest) step = round((to - from) * widest / this.width);
      return {step, label: at => write(at, step)};
    }

    drawAxis(root) {
      const {step, label} = this.scale();
      for (let n = Math.ceil(this.view.from / step); n * step <= this.view.to; n++) {
        const at = this.x(n * step), text = label(n * step), half = text.length * 3.4;
        svg(root, "line", {class: "tl-grid", x1: at, x2: at, y1: 18, y2: this.height});
        const middle = Math.min(Math.max(at, half + 2), this.width - half - 2);
        svg(root, "text", {class: "tl-tick", x: middle, y: 13, "text-anchor": "middle"}, text);
      }
    }

    // drawMarks numbers the marks. Those that would hide each other share a label.
    drawMarks(root) {
      const groups = [];
      this.marks.forEach((m, i) => {
        const at = this.x(m.at), last = groups[groups.length - 1];
        if (at < -1 || at > this.width + 1) return;
        svg(root, "line", {class: "tl-markline", x1: at, x2: at, y1: 34, y2: this.height});
        if (last && at - last.at < 26) last.to = i + 1;
        else groups.push({at, from: i + 1, to: i + 1});
      });
      for (const g of groups) {
        const text = g.from === g.to ? String(g.from) : `${g.from}–${g.to}`;
        const half = Math.max(8, text.length * 3.5 + 5);
        const at = Math.min(Math.max(g.at, half + 1), this.width - half - 1);
        svg(root, "rect", {class: "tl-dot", x: at - half, y: 18, width: 2 * half, height: 16, rx: 8});
        svg(root, "text", {class: "tl-mark", x: at, y: 30, "text-anchor": "middle"}, text);
      }
    }

    // firstIn returns the index in a lane of the first section that ends after a time.
    firstIn(lane, at) { return first(lane, i => this.sections[i].end > at); }

    // place returns where a section is drawn.
    place(s) {
      return {from: Math.max(-20, this.x(s.start)), to: Math.min(this.width + 20, this.x(s.end)), y: this.ys[s.lane]};
    }

    // drawSections draws what is in view. Neighbours that are too short to be told apart become one bar.
    drawSections(root) {
      const bars = [], runs = [];
      for (const lane of this.inLane) {
        let run = null;
        for (let k = this.firstIn(lane, this.view.from); k < lane.length; k++) {
          const i = lane[k], s = this.sections[i];
          if (s.start > this.view.to) break;
          const bar = {i, s, ...this.place(s)};
          if (bar.to - bar.from >= 4) {
            bar.room = k + 1 < lane.length ? this.x(this.sections[lane[k + 1]].start) : this.width;
            bars.push(bar);
            run = null;
          } else if (run && bar.from - run.to < 1.5 && this.isBad(run.s) === this.isBad(s)) {
            run.to = Math.max(run.to, bar.to);
          } else {
            run = {...bar, to: Math.max(bar.to, bar.from + 2)};
            runs.push(run);
          }
        }
      }
      this.drawShape(root, runs, "tl-many");
      if (bars.length > mostBars) this.drawShape(root, bars, "tl-section tl-thin");
      else for (const bar of bars) this.drawBar(root, bar);
      for (const i of this.outlined) {
        const {from, to, y} = this.place(this.sections[i]);
        if (to < 0 || from > this.width) continue;
        const box = {x: from - 2, y: y - 2, width: Math.max(6, to - from + 4), height: this.box + 4, rx: 5};
        svg(root, "rect", {class: "tl-active", "data-of": i, ...box});
      }
    }

    // drawShape draws bars as one shape for each kind.
    drawShape(root, bars, name) {
      const paths = {};
      for (const {s, from, to, y} of bars) {
        const classes = this.classesOf(s, name);
        const left = from.toFixed(1);
        paths[classes] = (paths[classes] || "") + `M${left} ${y}H${to.toFixed(1)}v${this.box}H${left}z`;
      }
      for (const classes in paths) svg(root, "path", {class: classes, d: paths[classes]});
    }

    drawBar(root, bar) {
      const {s, i, from, to, y} = bar, height = this.box;
      const rx = Math.min(3, height / 3, (to - from) / 4);
      const classes = this.classesOf(s, this.pitch < 18 ? "tl-section tl-thin" : "tl-section");
      svg(root, "rect", {class: classes, "data-section": i, x: from, y, width: to - from, height, rx});
      if (s.overlap && this.isBad(s)) {
        for (let k = first(this.shared, o => o.to > s.start); k < this.shared.length; k++) {
          if (this.shared[k].from >= s.end) break;
          const a = Math.max(from, this.x(this.shared[k].from)), b = Math.min(to, this.x(this.shared[k].to));
          if (b > a) svg(root, "rect", {fill: `url(#${this.id}o)`, x: a, y: y + 1, width: b - a, height: height - 2});
        }
      }
      if (this.pitch >= 18) this.drawLabel(root, bar);
    }

    // labels returns what to write on a section, from the longest to the shortest.
    labels(s) {
      const who = this.marks.length ? s.request + ": " : "", full = who + change(s);
      const short = s.after === undefined ? [] : ["→" + s.after];
      if (s.flaw) return [`${full} ${flaws[s.flaw][0]}`, full + " ✗", ...short.map(text => text + " ✗"), "✗"];
      return [full, ...short];
    }

    // drawLabel writes into a bar, or beside it, as much as there is room for.
    drawLabel(root, {s, from, to, y, room}) {
      const left = Math.max(from, 0), inside = Math.min(to, this.width) - left;
      const beside = Math.min(room, this.width) - to;
      for (const text of this.labels(s)) {
        const width = text.length * 7.3 + 10;
        if (inside < width && beside < width) continue;
        const at = inside >= width ? left + 5 : to + 4;
        if (inside >= width && s.overlap && this.isBad(s)) { // the hatch would make it hard to read
          const ground = {x: at - 3, y: y + 3, width: width - 4, height: this.box - 6, rx: 2};
          svg(root, "rect", {class: this.classesOf(s, "tl-section tl-ground"), ...ground});
        }
        svg(root, "text", {x: at, y: y + this.box / 2 + 4}, text);
        return;
      }
    }

    // drawOverlaps frames the overlaps that are findings.
    drawOverlaps(root) {
      for (const f of this.findings) {
        const from = this.x(f.start), to = this.x(f.end);
        if (f.kind !== "overlap" || to < 0 || from > this.width) continue;
        const box = {x: from, y: this.top - 15, width: Math.max(1, to - from), height: this.height - this.top + 13};
        svg(root, "rect", {class: "tl-found", ...box});
        const text = "overlap " + time(f.end - f.start), half = text.length * 3.9;
        const middle = (Math.max(0, from) + Math.min(this.width, to)) / 2;
        const at = Math.min(Math.max(middle, half), this.width - half);
        svg(root, "text", {class: "tl-band", "text-anchor": "middle", x: at, y: this.top - 4}, text);
      }
    }

    // Input.

    listen() {
      const pointers = new Map(); // where each was last
      let moved = 0;
      this.plot.addEventListener("pointerdown", e => {
        pointers.set(e.pointerId, e.clientX);
        moved = 0;
      });
      this.plot.addEventListener("pointermove", e => {
        if (e.buttons === 0) pointers.delete(e.pointerId); // it was released outside
        if (!pointers.has(e.pointerId)) return this.hover(e);
        moved += Math.abs(e.clientX - pointers.get(e.pointerId));
        if (moved >= 4) this.drag(e, pointers);
      });
      const release = e => {
        if (pointers.delete(e.pointerId) && moved < 4 && e.type === "pointerup") {
          const i = this.sectionAt(e);
          if (i >= 0) this.select(i);
        }
        this.plot.classList.remove("tl-drag");
      };
      this.plot.addEventListener("pointerup", release);
      this.plot.addEventListener("pointercancel", release);
      this.plot.addEventListener("wheel", e => this.wheel(e), {passive: false});
      this.plot.addEventListener("keydown", e => this.key(e));
      new ResizeObserver(() => {
        if (this.plot.clientWidth !== this.width) this.redraw();
      }).observe(this.plot);
    }

    sectionAt(e) {
      const box = this.plot.getBoundingClientRect(), factor = this.width / this.plot.clientWidth;
      const x = (e.clientX - box.left - this.plot.clientLeft) * factor;
      const y = (e.clientY - box.top - this.plot.clientTop) * factor;
      const n = this.ys.findIndex(top => y >= top && y < top + this.pitch);
      if (n < 0) return -1;
      const lane = this.inLane[n], k = this.firstIn(lane, this.timeAt(x - 3));
      return k < lane.length && this.x(this.sections[lane[k]].start) <= x + 3 ? lane[k] : -1;
    }

    hover(e) {
      const i = this.sectionAt(e);
      if (i >= 0 && i !== this.active) this.outline(i);
    }

    // drag moves with one pointer, and zooms with two.
    drag(e, pointers) {
      this.plot.classList.add("tl-drag");
      this.plot.setPointerCapture(e.pointerId);
      const before = pointers.get(e.pointerId);
      const other = [...pointers].find(([id]) => id !== e.pointerId);
      pointers.set(e.pointerId, e.clientX);
      if (!other) {
        this.pan((before - e.clientX) / (this.width - 2 * pad));
      } else if (Math.abs(e.clientX - other[1]) > 8) {
        const middle = (e.clientX + other[1]) / 2 - this.plot.getBoundingClientRect().left;
        this.zoom(Math.abs(before - other[1]) / Math.abs(e.clientX - other[1]), this.timeAt(middle));
      }
    }

    wheel(e) {
      const x = e.clientX - this.plot.getBoundingClientRect().left;
      if (e.ctrlKey) this.zoom(Math.exp(e.deltaY * 0.004), this.timeAt(x));
      else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX / this.width);
      else return;
      e.preventDefault();
    }

    key(e) {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const last = this.sections.length - 1;
      const act = {
        ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), "0": () => this.whole(),
        "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6),
        ArrowDown: () => this.select(Math.min(this.active + 1, last)),
        ArrowUp: () => this.select(Math.max(this.active - 1, 0)),
        Home: () => this.select(0), End: () => this.select(last),
      }[e.key];
      if (!act) return;
      e.preventDefault();
      act();
    }
  }

  return (element, w) => { new Timeline(element, w); };
})();
