// drawTimeline draws a window of critical sections (timeline.Window) into an element: a lane for each section that is
// open at the same time as another one, on a true time axis. A window may also have marks: [{at, text}], which are the
// steps of a story.
function drawTimeline(element, w) {
  "use strict";
  const lanes = w.lanes, sections = w.sections, findings = w.findings || [], marks = w.marks || [];
  const top = marks.length ? 54 : 34, pad = 10, head = 18;
  const pitch = Math.max(7, Math.min(28, Math.floor(720 / lanes.length)));
  const id = "tl" + Math.random().toString(36).slice(2);
  const least = 100; // the shortest view, in nanoseconds
  let width = 800, active = -1, chosen = [], drawn = false;
  let view = { from: w.from || 0, to: w.to };
  const edge = { from: view.from, to: view.to };

  // The lanes' positions: a heading stands above the first lane of each replica.
  const ys = [], headings = [];
  let bottom = top;
  lanes.forEach((lane, i) => {
    if (i === 0 || lane.replica !== lanes[i - 1].replica) {
      headings.push({ replica: lane.replica, y: bottom });
      bottom += head;
    }
    ys.push(bottom);
    bottom += pitch;
  });
  const height = bottom + 8;
  const inLane = lanes.map(() => []);
  sections.forEach((s, i) => inLane[s.lane].push(i)); // by start, and disjoint: so by end as well

  // When two or more critical sections were open, as disjoint intervals.
  const shared = [];
  {
    const bounds = [];
    for (const s of sections) if (!s.kind) bounds.push([s.start, 1], [s.end, -1]);
    bounds.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let open = 0;
    for (const [at, step] of bounds) {
      open += step;
      if (step > 0 && open === 2) shared.push({ from: at, to: at });
      if (step < 0 && open === 1) shared[shared.length - 1].to = at;
    }
  }

  // The elements.
  const html = (name, attributes, ...children) => {
    const e = document.createElement(name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    e.append(...children);
    return e;
  };
  const svg = (parent, name, attributes, text) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
  };
  const button = (text, label, act, extra) => {
    const b = html("button", { type: "button", class: "button" + (extra || ""), "aria-label": label, title: label }, text);
    b.addEventListener("click", act);
    return b;
  };
  const noun = w.requests || sections.some(s => s.kind) ? "requests" : "critical sections";
  const tools = html("div", { class: "tl-tools no-print" });
  const names = { overlap: "overlap", lost: "lost update", twice: "repeated deduction", oversold: "sale without stock" };
  findings.forEach((f, i) => {
    const text = "Jump to the first " + names[f.kind];
    tools.append(button(text, text, () => jump(f), i ? "" : " tl-jump"));
  });
  tools.append(html("div", { class: "tl-zoom", role: "group", "aria-label": "Zoom and move" },
    button("−", "Zoom out", () => zoom(2)), button("+", "Zoom in", () => zoom(0.5)),
    button("◂", "Earlier", () => pan(-0.4)), button("▸", "Later", () => pan(0.4)),
    button("Whole", "Show the whole window", whole)));
  const plot = html("div", {
    class: "tl-view", tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label":
      `${w.title}: ${sections.length} ${noun}. Up and down select one, left and right move, plus and minus zoom.`,
  });
  const facts = html("p", { class: "tl-facts" }, overview());
  const detail = html("p", { class: "tl-detail", "aria-live": "polite" }, findings.length ? findings[0].text : "");
  element.replaceChildren(html("div", { class: "tl" }, facts, tools, plot, detail, legend(), keys(), table()));

  function overview() {
    const all = sections.length === w.of ? "" : count(sections.length) + " of ";
    let text = w.title + (w.round ? `, round ${w.round}` : "") + `: ${all}${count(w.of)} ${noun}`;
    if (w.omitted) text += `; ${count(w.omitted)} more of this time are not drawn`;
    text += ". ";
    if (w.requests) return text + "No critical sections are on record: a bar is a request, from sending it to the answer.";
    if (w.allowed) return text + "Sections may overlap: the store, or a check before the write, finds conflicts.";
    return text + (sections.some(s => s.overlap || s.flaw) ? "" : "No two of them overlap.");
  }

  function count(n) { return n.toLocaleString("en-US"); }

  // Times.
  function span(ns) {
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
      if (Math.abs(ns) >= size) return +(ns / size).toPrecision(3) + " " + unit;
    return ns + " ns";
  }
  function scale() {
    const far = Math.max(Math.abs(view.from), Math.abs(view.to));
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(u => far >= u[1]) || ["ns", 1];
    const step = n => {
      const raw = (view.to - view.from) / n, ten = Math.pow(10, Math.floor(Math.log10(raw)));
      return Math.max(1, ten * [1, 2, 5, 10].find(m => m * ten >= raw));
    };
    let chosen = step(Math.max(2, width / 110));
    const digits = Math.max(0, Math.ceil(Math.log10(size / chosen) - 1e-9));
    const label = at => (at / size).toFixed(digits) + " " + unit;
    const longest = Math.max(label(view.from).length, label(view.to).length) * 7 + 18;
    if ((chosen / (view.to - view.from)) * width < longest) chosen = step(Math.max(1, width / longest / 1.6));
    return { step: chosen, label };
  }
  const x = at => pad + ((at - view.from) / (view.to - view.from)) * (width - 2 * pad);
  const timeAt = px => view.from + ((px - pad) / (width - 2 * pad)) * (view.to - view.from);

  // Movements.
  function show(from, to) {
    const whole = edge.to - edge.from, length = Math.min(whole, Math.max(least, to - from));
    const middle = (from + to) / 2;
    from = Math.min(Math.max(edge.from, middle - length / 2), edge.to - length);
    view = { from, to: from + length };
    redraw();
  }
  function whole() { show(edge.from, edge.to); }
  function pan(share) {
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  }
  function zoom(factor, at) {
    if (at === undefined) at = (view.from + view.to) / 2;
    show(at + (view.from - at) * factor, at + (view.to - at) * factor);
  }
  function jump(f) {
    const of = f.sections.map(i => sections[i]);
    const from = Math.min(...of.map(s => s.start)), to = Math.max(...of.map(s => s.end));
    let room = (to - from) * 0.2, middle = [from, to];
    if (f.kind === "overlap") { // show both sections, unless the overlap would be too short to see
      const most = 8 * (f.end - f.start);
      if (to - from > most) [room, middle] = [most * 0.45, [f.start, f.end]];
    }
    active = f.sections[f.sections.length - 1];
    chosen = f.sections;
    show(middle[0] - room, middle[1] + room);
    detail.textContent = f.text;
    plot.focus({ preventScroll: true });
    reveal();
  }
  // reveal scrolls up or down, never sideways.
  function reveal() {
    const left = [];
    for (let e = plot; e; e = e.parentElement) left.push([e, e.scrollLeft]);
    plot.scrollIntoView({ block: "nearest" });
    for (const [e, at] of left) e.scrollLeft = at;
  }
  function select(i) {
    const s = sections[active = i];
    chosen = [i];
    const length = view.to - view.from;
    if (x(s.end) - x(s.start) < 6) show(s.start - 4 * (s.end - s.start), s.end + 4 * (s.end - s.start));
    else if (s.start > view.to || s.end < view.from) show(s.start - length * 0.1, s.start + length * 0.9);
    else redraw();
    detail.textContent = describe(s);
  }

  function describe(s) {
    const parts = [`${s.request} on ${lanes[s.lane].replica}: `];
    const doing = { request: "from sending to the answer ", restock: "a restock that took " }[s.kind] || "inside for ";
    parts.push(`${doing}${span(s.end - s.start)}, from ${span(s.start)}. `);
    if (s.kind === "restock") parts.push(`Put back ${units(s)}. `);
    else if (s.before !== undefined) parts.push(`Read ${s.before}, wrote ${s.after}. `);
    else parts.push(s.outcome ? `Asked for ${units(s)}: ${outcome(s)}. ` : `Sold ${units(s)}; the answer does not say how many are left. `);
    if (s.token) parts.push(`Token ${s.token}. `);
    if (s.overlap && !w.allowed) parts.push("It overlaps another one. ");
    parts.push({
      lost: "Another sale left the same stock: one of both is lost.", twice: "The same deduction was made again.",
      oversold: "There was nothing left to sell.",
    }[s.flaw] || "");
    return parts.join("");
  }
  function outcome(s) {
    return { sold_out: "sold out", unknown: "outcome unknown" }[s.outcome] || s.outcome || "sold";
  }
  function units(s) { return s.count || Math.abs(s.before - s.after); }
  function label(s) { return (marks.length ? s.request + ": " : "") + change(s); }
  function change(s) {
    if (s.kind === "restock") return "+" + units(s);
    if (s.outcome) return outcome(s);
    return s.before === undefined ? "−" + units(s) : `${s.before} → ${s.after}`;
  }
  function red(s) { return (s.overlap && !w.allowed) || Boolean(s.flaw); }
  function classes(s, many) {
    let c = many ? "tl-many" : "tl-section";
    if (s.kind === "request") c += " tl-request";
    if (s.kind === "restock") c += " tl-putback";
    if (s.overlap && !w.allowed) c += " tl-overlap";
    if (s.flaw) c += " tl-flawed";
    return c;
  }

  // Drawing.
  let picture;
  function redraw() {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => { drawn = false; draw(); });
  }
  function draw() {
    width = Math.max(280, plot.clientWidth);
    const root = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("aria-hidden", "true");
    const defs = svg(root, "defs", {});
    hatch(defs, id + "h", "tl-hatch", 7);
    hatch(defs, id + "s", "tl-shadehatch", 9);
    for (const h of headings) svg(root, "rect", { class: "tl-group", x: 0, y: h.y, width, height: head });
    drawShades(root);
    for (const h of headings) svg(root, "text", { class: "tl-replica", x: pad, y: h.y + 13 }, h.replica);
    drawAxis(root);
    drawBars(root);
    drawFindings(root);
    if (picture) picture.replaceWith(root);
    else plot.append(root);
    picture = root;
  }
  function hatch(defs, name, cls, size) {
    const p = svg(defs, "pattern", {
      id: name, class: cls, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    svg(p, "line", { x1: 0, y1: 0, x2: 0, y2: size });
  }
  function drawAxis(root) {
    const { step, label } = scale();
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
      const at = x(n * step), text = label(n * step), half = text.length * 3.4;
      svg(root, "line", { class: "tl-grid", x1: at, x2: at, y1: 18, y2: height });
      const shift = at < half ? "start" : at > width - half ? "end" : "middle";
      const edge = { start: 2, end: width - 2 }[shift];
      svg(root, "text", { class: "tl-tick", x: edge === undefined ? at : edge, y: 13, "text-anchor": shift }, text);
    }
    drawMarks(root);
  }
  // drawMarks numbers the marks. Those that would hide each other share a number.
  function drawMarks(root) {
    const groups = [];
    marks.forEach((m, i) => {
      const at = x(m.at), last = groups[groups.length - 1];
      if (at < -1 || at > width + 1) return;
      if (last && at - last.at < 26) last.to = i;
      else groups.push({ at, from: i, to: i });
    });
    for (const g of groups) {
      const text = g.from === g.to ? String(g.from + 1) : `${g.from + 1}–${g.to + 1}`;
      const half = Math.max(8, text.length * 3.5 + 5), at = Math.min(Math.max(g.at, half + 1), width - half - 1);
      const group = svg(root, "g", {});
      svg(group, "title", {}, marks.slice(g.from, g.to + 1).map((m, i) => `${g.from + i + 1}: ${m.text}`).join("\n"));
      for (const m of marks.slice(g.from, g.to + 1))
        svg(group, "line", { class: "tl-markline", x1: x(m.at), x2: x(m.at), y1: 34, y2: height });
      svg(group, "rect", { class: "tl-dot", x: at - half, y: 18, width: 2 * half, height: 16, rx: 8 });
      svg(group, "text", { class: "tl-mark", x: at, y: 30, "text-anchor": "middle" }, text);
    }
  }
  function drawShades(root) {
    for (const s of w.shaded || []) {
      const from = Math.max(0, x(s.start)), to = Math.min(width, x(s.end));
      if (to < 0 || from > width) continue;
      const box = { x: from, y: 18, width: Math.max(2, to - from), height: height - 18 };
      svg(svg(root, "rect", { class: "tl-shaded", ...box }), "title", {}, s.text);
      svg(root, "rect", { fill: `url(#${id}s)`, ...box });
    }
  }
  // first returns the index of the first element for which a test is true, if it is true for all that follow.
  function first(list, test) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (test(list[middle])) high = middle;
      else low = middle + 1;
    }
    return low;
  }
  // firstIn returns the index in a lane of the first section that ends after a time.
  function firstIn(lane, at) { return first(lane, i => sections[i].end > at); }
  function drawBars(root) {
    const single = [], runs = [];
    inLane.forEach((lane, n) => {
      let run = null;
      for (let k = firstIn(lane, view.from); k < lane.length; k++) {
        const i = lane[k], s = sections[i];
        if (s.start > view.to) break;
        const from = Math.max(-20, x(s.start)), to = Math.min(width + 20, x(s.end));
        if (to - from >= 4) {
          run = null;
          single.push({ i, s, n, from, to, next: k + 1 < lane.length ? x(sections[lane[k + 1]].start) : width });
        } else if (run && from - run.to < 1.5 && run.bad === red(s)) {
          run.to = Math.max(run.to, to);
        } else {
          run = { n, s, from, to: Math.max(to, from + 2), bad: red(s) };
          runs.push(run);
        }
      }
    });
    const box = Math.max(4, pitch - 5);
    const paths = {};
    const add = (r, many) => {
      const c = classes(r.s, many);
      paths[c] = (paths[c] || "") + `M${r.from.toFixed(1)} ${ys[r.n]}H${r.to.toFixed(1)}v${box}H${r.from.toFixed(1)}z`;
    };
    for (const r of runs) add(r, true);
    if (single.length > 700) for (const r of single) add(r, false); // too many elements would be slow
    for (const c in paths) svg(root, "path", { class: c, d: paths[c] });
    if (single.length <= 700) for (const r of single) drawBar(root, r, box);
    for (const i of chosen) {
      const s = sections[i], from = Math.max(-20, x(s.start)), to = Math.min(width + 20, x(s.end));
      if (to >= 0 && from <= width)
        svg(root, "rect", {
          class: "tl-active", x: from - 2, y: ys[s.lane] - 2, width: Math.max(6, to - from + 4), height: box + 4, rx: 5,
        });
    }
  }
  function drawBar(root, r, box) {
    const { s, i, from, to } = r, y = ys[r.n];
    const place = { x: from, y, width: to - from, height: box, rx: Math.min(3, box / 3, (to - from) / 4) };
    svg(root, "rect", { class: classes(s) + (pitch < 18 ? " tl-thin" : ""), "data-section": i, ...place });
    if (s.overlap && red(s)) {
      for (let k = first(shared, o => o.to > s.start); k < shared.length && shared[k].from < s.end; k++) {
        const o = shared[k];
        const a = Math.max(from, x(o.from)), b = Math.min(to, x(o.to));
        if (b > a) svg(root, "rect", { fill: `url(#${id}h)`, x: a, y: y + 1, width: b - a, height: box - 2 });
      }
    }
    if (pitch < 18) return;
    const left = Math.max(from, 0), inside = Math.min(to, width) - left, beside = Math.min(r.next, width) - to;
    const flaw = { lost: " ✗ lost", twice: " ✗ twice", oversold: " ✗ no stock" }[s.flaw];
    for (const text of flaw ? [label(s) + flaw, label(s) + " ✗", "✗"] : [label(s)]) {
      const wide = text.length * 7.3 + 10;
      if (inside < wide && beside < wide) continue;
      const at = inside >= wide ? left + 5 : to + 4;
      if (inside >= wide && s.overlap && red(s)) // text on a hatched ground needs one of its own
        svg(root, "rect", { class: classes(s) + " tl-ground", x: at - 3, y: y + 3, width: wide - 4, height: box - 6, rx: 2 });
      svg(root, "text", { x: at, y: y + box / 2 + 4 }, text);
      return;
    }
  }
  function drawFindings(root) {
    for (const f of findings) {
      if (f.kind === "overlap") {
        const from = x(f.start), to = x(f.end);
        if (to < 0 || from > width) continue;
        svg(root, "rect", { class: "tl-found", x: from, y: top - 15, width: Math.max(1, to - from), height: height - top + 13 });
        const text = "overlap " + span(f.end - f.start), middle = (Math.max(0, from) + Math.min(width, to)) / 2;
        const half = text.length * 3.9;
        svg(root, "text", {
          class: "tl-band", "text-anchor": "middle", y: top - 4, x: Math.min(Math.max(middle, half), width - half),
        }, text);
      }
    }
  }

  // Legend, keys and table.
  function legend() {
    const list = html("ul", { class: "tl-legend" });
    const entry = (cls, text, hatched) => {
      const li = html("li", {});
      const s = svg(li, "svg", { width: 26, height: 14, "aria-hidden": "true" });
      const defs = svg(s, "defs", {});
      if (hatched) hatch(defs, id + hatched, hatched === "x" ? "tl-hatch" : "tl-shadehatch", 6);
      svg(s, "rect", { class: cls, x: 1, y: 1, width: 24, height: 12, rx: 3 });
      if (hatched) svg(s, "rect", { fill: `url(#${id}${hatched})`, x: 2, y: 2, width: 22, height: 10 });
      li.append(text);
      list.append(li);
    };
    if (sections.some(s => !s.kind && !red(s))) entry("tl-section", "critical section, units read → written");
    if (sections.some(s => s.overlap && red(s))) entry("tl-section tl-overlap", "overlaps another one", "x");
    if (sections.some(s => s.flaw)) entry("tl-section tl-flawed", "✗: its sale is at fault");
    if (sections.some(s => s.kind === "request")) entry("tl-section tl-request", "request, from sending to the answer");
    if (sections.some(s => s.kind === "restock")) entry("tl-section tl-putback", "units put back");
    for (const s of w.shaded || []) entry("tl-shaded", "until the next sale after: " + s.text, "y");
    return list;
  }
  function keys() {
    return html("p", { class: "tl-keys no-print" },
      "Keys: ↑ ↓ select, ← → move, + − zoom, 0 whole. Ctrl and the wheel zoom, dragging moves.");
  }
  function table() {
    const box = html("details", { class: "no-print" }, html("summary", {}, "As a table"));
    box.addEventListener("toggle", () => {
      if (!box.open || box.children.length > 1) return;
      const rows = [["request", "replica", "from", "for", "units", "token", "remarks"]];
      for (const s of sections.slice(0, 500)) {
        const remarks = [s.kind === "request" ? outcome(s) : "", s.overlap && red(s) ? "overlaps" : "", s.flaw || ""];
        rows.push([s.request || "", lanes[s.lane].replica, span(s.start), span(s.end - s.start), change(s),
          s.token || "", remarks.filter(Boolean).join(", ")]);
      }
      const t = html("table", {});
      rows.forEach((row, n) => t.append(html("tr", {}, ...row.map(c => html(n ? "td" : "th", {}, String(c))))));
      box.append(html("div", { class: "tl-table", tabindex: "0", role: "region", "aria-label": "The sections as a table" }, t));
      if (sections.length > 500) box.append(html("p", {}, `The first 500 of ${count(sections.length)}.`));
    });
    return box;
  }

  // Input.
  function sectionAt(event) {
    const box = plot.getBoundingClientRect(), factor = width / plot.clientWidth;
    const px = (event.clientX - box.left - plot.clientLeft) * factor, py = (event.clientY - box.top - plot.clientTop) * factor;
    const n = ys.findIndex(y => py >= y && py < y + pitch);
    if (n < 0) return -1;
    const lane = inLane[n], k = firstIn(lane, timeAt(px - 3));
    return k < lane.length && x(sections[lane[k]].start) <= px + 3 ? lane[k] : -1;
  }
  const pointers = new Map();
  let moved = 0;
  plot.addEventListener("pointerdown", e => {
    pointers.set(e.pointerId, e.clientX);
    moved = 0;
  });
  plot.addEventListener("pointermove", e => {
    if (!pointers.has(e.pointerId)) {
      const i = sectionAt(e);
      if (i >= 0 && i !== active) {
        active = i;
        chosen = [i];
        redraw();
        detail.textContent = describe(sections[i]);
      }
      return;
    }
    const before = pointers.get(e.pointerId), dx = e.clientX - before;
    const others = [...pointers].filter(([pointer]) => pointer !== e.pointerId).map(p => p[1]);
    moved += Math.abs(dx);
    if (moved < 4) return;
    plot.classList.add("tl-drag");
    plot.setPointerCapture(e.pointerId);
    pointers.set(e.pointerId, e.clientX);
    if (others.length === 0) pan(-dx / (width - 2 * pad));
    else if (Math.abs(e.clientX - others[0]) > 8) {
      const left = plot.getBoundingClientRect().left;
      zoom(Math.abs(before - others[0]) / Math.abs(e.clientX - others[0]), timeAt((e.clientX + others[0]) / 2 - left));
    }
  });
  const release = e => {
    if (pointers.delete(e.pointerId) && moved < 4 && e.type === "pointerup") {
      const i = sectionAt(e);
      if (i >= 0) select(i);
    }
    plot.classList.remove("tl-drag");
  };
  plot.addEventListener("pointerup", release);
  plot.addEventListener("pointercancel", release);
  plot.addEventListener("wheel", e => {
    if (e.ctrlKey) zoom(Math.exp(e.deltaY * 0.004), timeAt(e.clientX - plot.getBoundingClientRect().left));
    else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan(e.deltaX / width);
    else return;
    e.preventDefault();
  }, { passive: false });
  plot.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const act = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6), "−": () => zoom(1 / 0.6), "0": whole, Home: () => select(0),
      End: () => select(sections.length - 1),
      ArrowDown: () => select(Math.min(active + 1, sections.length - 1)), ArrowUp: () => select(Math.max(active - 1, 0)),
    }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  });
  new ResizeObserver(() => { if (plot.clientWidth !== width) redraw(); }).observe(plot);
  draw();
}
