"use strict";
// The page shows the state that the server sends, and sends what a person asks for. It keeps nothing of its own but
// what is being filled in, the tab that is open, and the step that is looked at.
(() => {
  const byId = (id) => document.getElementById(id);
  const data = (id) => JSON.parse(byId(id).textContent);

  // h makes an element. Attributes that are null or false are left out; functions are listeners.
  function h(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") element.addEventListener(key, value);
      else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return element;
  }

  // show fills an element, unless it shows the same already.
  const shown = new Map();
  function show(id, value, make) {
    const text = JSON.stringify(value);
    if (shown.get(id) === text) return;
    shown.set(id, text);
    byId(id).replaceChildren(...[make(value)].flat(Infinity).filter((child) => child !== null));
  }

  function setText(id, text) {
    if (byId(id).textContent !== text) byId(id).textContent = text;
  }

  function setHidden(id, hidden) { byId(id).hidden = hidden; }

  // A button that can do nothing now keeps the focus: a browser takes it from one that is disabled.
  function setEnabled(button, enabled) { button.setAttribute("aria-disabled", !enabled); }
  const isEnabled = (button) => button.getAttribute("aria-disabled") !== "true";
  function onPress(button, action) {
    button.addEventListener("click", () => { if (isEnabled(button)) action(); });
  }

  // showRows shows one element for each value, and keeps those that are there already: what has the focus, or is being
  // clicked, stays. make returns the element and a function that shows a value in it.
  const rowsOf = new Map();
  function showRows(id, values, keyOf, make) {
    const list = byId(id), old = rowsOf.get(id) || new Map(), rows = new Map();
    for (const value of values) {
      const key = keyOf(value), row = old.get(key) || make(value);
      old.delete(key);
      rows.set(key, row);
      row.update(value);
    }
    for (const { element } of old.values()) element.remove();
    for (const [i, { element }] of [...rows.values()].entries()) {
      if (list.children[i] !== element) list.insertBefore(element, list.children[i] || null);
    }
    rowsOf.set(id, rows);
  }

  const whole = (n) => Math.round(n).toLocaleString("en").replaceAll(",", "\u202f");
  const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
  const word = (kind, text) => h("span", { class: "word " + kind }, text);

  const reportLink = (address) => address === "" ? null
    : h("p", null, h("a", { href: address, target: "_blank", class: "button" }, "Open the report"));

  // ask sends a request, and shows why it was refused.
  async function ask(path, body) {
    setHidden("problem", true);
    try {
      const response = await fetch(path, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body || {}),
      });
      if (response.ok) return true;
      const { error } = await response.json();
      setText("problem", error[0].toUpperCase() + error.slice(1) + ".");
    } catch {
      setText("problem", "The lab does not answer. Was it stopped in the terminal?");
    }
    setHidden("problem", false);
    return false;
  }

  // Tabs

  const tabs = [...document.querySelectorAll("[role=tab]")];
  function openTab(tab) {
    for (const other of tabs) {
      const open = other === tab;
      other.setAttribute("aria-selected", open);
      other.tabIndex = open ? 0 : -1;
      setHidden(other.getAttribute("aria-controls"), !open);
    }
    history.replaceState(null, "", "#" + tab.id.slice("tab-".length));
  }
  for (const [i, tab] of tabs.entries()) {
    tab.addEventListener("click", () => openTab(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs[(to + tabs.length) % tabs.length];
      next.focus();
      openTab(next);
    });
  }
  const hash = byId("tab-" + location.hash.slice(1));
  if (hash && tabs.includes(hash)) openTab(hash);

  // Charts. They show what the figures above them say, so they are hidden from screen readers.

  const svgName = "http://www.w3.org/2000/svg";
  function svg(name, attributes, ...children) {
    const element = document.createElementNS(svgName, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // lines draws values over time. Each line is [class, values]; the first one has an area below it. A value that is
  // null is not known.
  function lines(times, ...all) {
    const begin = times[0] < 1 ? 0 : times[0]; // later if only the last minute is known
    const end = Math.max(...times, 1), top = Math.max(...all.flatMap(([, values]) => values), 1);
    const picture = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const [i, [name, values]] of all.entries()) {
      const known = [...values.keys()].filter((n) => values[n] !== null);
      if (known.length < 2) continue;
      const x = known.map((n) => (100 * (times[n] - begin) / (end - begin)).toFixed(2));
      const at = known.map((n, k) => `${x[k]},${(39 - 37 * Math.max(values[n], 0) / top).toFixed(2)}`);
      if (i === 0) picture.append(svg("path", { class: "area", d: `M${x[0]},40 L${at.join(" L")} L${x.at(-1)},40 Z` }));
      picture.append(svg("path", { class: "stroke " + name, d: "M" + at.join(" L") }));
    }
    return h("div", { class: "plot" }, h("span", { class: "top" }, whole(top)), picture,
      h("span", null, `${begin.toFixed(0)} s`), h("span", null, `${end.toFixed(1)} s`));
  }

  // bars draws critical sections in as many lanes as are needed to draw none over another.
  function bars(sections, allowed) {
    const lanes = []; // the end of the last section of each
    const placed = sections.map((s) => {
      let lane = lanes.findIndex((end) => end <= s.entered);
      if (lane < 0) lane = lanes.length;
      lanes[lane] = s.left;
      return { ...s, lane, overlap: !allowed &&
        sections.some((o) => o !== s && o.item === s.item && o.entered < s.left && s.entered < o.left) };
    });
    const from = Math.min(...sections.map((s) => s.entered)), span = Math.max(-from, 0.001);
    const height = Math.min(76 / Math.max(lanes.length, 1), 14);
    const picture = svg("svg", { viewBox: "0 0 1000 76", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const p of placed) {
      picture.append(svg("rect", {
        class: "inside" + (p.overlap ? " overlap" : ""),
        x: 1000 * (p.entered - from) / span, y: p.lane * height,
        width: Math.max(1000 * (p.left - p.entered) / span, 2), height: Math.max(height - 1, 0.6),
      }));
    }
    return { picture, span };
  }

  // Run

  byId("find-strategy").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const label of document.querySelectorAll(".choice")) {
      label.hidden = !label.textContent.toLowerCase().includes(wanted);
      label.style.display = label.hidden ? "none" : "";
    }
  });

  const workloads = {
    "plenty": "Plenty: stock for every request.",
    "flash-sale": "Flash sale: stock for a sixth of the requests.",
    "": "Both: plenty (stock for every request) and flash sale (stock for a sixth). Strategies that claim to be " +
      "correct also run small workloads that are judged and not measured: orders, retries and the last units.",
  };
  const workload = byId("run-form").elements.workload;
  const showWorkload = () => setText("workload-about", workloads[workload.value]);
  workload.addEventListener("change", showWorkload);
  showWorkload();

  byId("run-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!isEnabled(byId("run"))) return;
    const fields = new FormData(event.target), number = (name) => Number(fields.get(name));
    ask("/run", {
      strategies: fields.getAll("strategy"), users: number("users"), hold_ms: number("hold_ms"),
      workload: fields.get("workload"), requests: number("requests"), rounds: number("rounds"),
      items: number("items"),
    });
  });
  onPress(byId("run-cancel"), () => ask("/cancel", { id: state.run.id }));

  const verdicts = { correct: "ok", wrong: "bad", inconclusive: "open", baseline: "base" };
  const verdictOf = (row) => word(verdicts[row.result] || "late", row.result); // correct, but a late write loses an update
  const results = {
    held: "Every strategy did what it claims, right or wrong.",
    failed: "Not everything was as claimed:",
    inconclusive: "Not everything could be judged:",
    canceled: "Canceled: what was measured is incomplete.",
    "ended early": "The run could not be finished:",
  };

  function showCell(cell) {
    const last = cell.samples[cell.samples.length - 1], times = cell.samples.map((s) => s.at_s);
    const rates = cell.samples.map((s) => s.per_s);
    setText("per-s", whole(last.per_s));
    show("chart-per-s", [times, rates], () => lines(times, ["", rates]));
    setText("sold", whole(last.sold));
    const missing = last.sold - last.gone;
    show("gone", [last.gone, missing], () => last.gone === null ? "sold; the stock cannot be read" : [
      h("span", null, `sold, ${whole(last.gone)} gone`),
      missing <= 0 ? null : cell.behind ? h("span", null, ` (${whole(missing)} not in MySQL yet)`)
        : h("span", { class: "lost" }, ` (${whole(missing)} too few)`),
    ]);
    const sold = cell.samples.map((s) => s.sold), gone = cell.samples.map((s) => s.gone);
    show("chart-stock", [times, sold, gone], () => lines(times, ["", sold], ["b", gone]));
    show("stock-key", cell.before, () => [
      h("b", { class: "a" }, "— as clients were told"), " ", h("b", { class: "b" }, "- - gone from the stock"),
      ` of ${plural(cell.before, "unit")}`,
    ]);
    setText("inside", cell.sections.length > 0 ? `${whole(last.inside)}` : "–");
    show("chart-sections", [cell.sections, cell.most, cell.allowed], ([sections, most, allowed]) => {
      if (sections.length === 0) return null;
      const { picture, span } = bars(sections, allowed);
      setText("sections-key",
        `${sections.length} of the last sections, over ${span.toFixed(1)} ms. Up to ${most} were seen together. ` +
        (allowed ? "They may overlap: the store, or a check before the write, finds conflicts." : ""));
      return picture;
    });
    if (cell.sections.length === 0) setText("sections-key", "The strategy reports no critical section.");
  }

  function showRun(run, busy) {
    const going = busy === "run";
    setEnabled(byId("run"), busy === "");
    setEnabled(byId("run-cancel"), going);
    if (!run) return;
    const cell = run.cell && run.cell.samples.length > 0 ? run.cell : null;
    setText("run-title", cell ? cell.name : going ? "Starting" : "The last run");
    const left = run.left_s > 0 ? `, about ${Math.ceil(run.left_s)} s left` : "";
    const answered = cell && `${whole(cell.samples.at(-1).answered)} of ${plural(cell.requests, "request")}`;
    setText("run-phase", run.ended ? "" : [run.phase + left, answered].filter(Boolean).join(". "));
    const progress = byId("run-progress");
    progress.hidden = run.ended || run.cells === 0;
    progress.max = Math.max(run.cells, 1);
    const part = cell && cell.requests > 0 ? Math.min(cell.samples.at(-1).answered / cell.requests, 1) : 0;
    progress.value = Math.max(run.done + part, run.rows.length);
    setHidden("tiles", !cell);
    if (cell) showCell(cell);
    setHidden("run-rows", run.rows.length === 0);
    setText("rows-title", run.ended ? "Judged" : "Judged so far");
    show("rows", run.rows, (rows) => rows.map((row) => h("tr", null,
      h("th", { scope: "row" }, row.name),
      h("td", null, verdictOf(row)),
      h("td", { class: "number" }, row.result === "wrong" ? "–" : whole(row.goodput)),
      h("td", null, row.evidence))));
    setHidden("run-verdict", !run.ended);
    if (run.ended) show("run-verdict", [run.result, run.problems, run.report, run.rows], () => {
      const judged = run.rows.filter((row) => row.result !== "baseline" && row.result !== "correct");
      const right = run.rows.filter((row) => row.result === "correct");
      return [
        judged.map((row) => h("div", null,
          h("p", { class: "verdict-line" }, verdictOf(row), " ", row.name),
          h("p", null, row.evidence))),
        right.length === 0 ? null
          : h("p", { class: "verdict-line" }, word("ok", "correct"), " ", right.map((row) => row.name).join("; ")),
        h("p", null, results[run.result]),
        run.problems.length ? h("ul", { class: "evidence" }, run.problems.map((line) => h("li", null, line))) : null,
        reportLink(run.report),
      ];
    });
    setHidden("run-command", false);
    byId("run-command").querySelector("code").textContent = run.command;
  }

  // Step through

  const faults = data("faults-data"), tour = data("tour-data");
  const scenario = byId("scenario"), strategy = byId("strategy"), stops = byId("tour");
  scenario.append(...faults.map((s) => h("option", { value: s.name }, s.name)));
  stops.append(...tour.map((t, i) => h("option", { value: i }, `${i + 1}. ${t.name}`)));
  stops.append(h("option", { value: "" }, "(none)"));
  function chooseScenario(name, who) {
    const fault = faults.find((s) => s.name === name);
    scenario.value = name;
    strategy.replaceChildren(...fault.strategies.map((s) => h("option", null, s)));
    if (fault.strategies.includes(who)) strategy.value = who;
    setText("fault-title", fault.title);
    const i = tour.findIndex((t) => t.scenario === name && t.strategy === strategy.value);
    stops.value = i < 0 ? "" : i;
    setText("fault-why", i < 0 ? "" : tour[i].why);
  }
  stops.addEventListener("change", () => {
    if (stops.value !== "") chooseScenario(tour[stops.value].scenario, tour[stops.value].strategy);
  });
  scenario.addEventListener("change", () => chooseScenario(scenario.value, strategy.value));
  strategy.addEventListener("change", () => chooseScenario(scenario.value, strategy.value));
  chooseScenario(tour[0].scenario, tour[0].strategy);

  let followed = false; // whether the form shows the fault that goes on
  let looked = -1; // at this step; -1: at what is now
  let told = 0; // id of the fault that is shown
  byId("fault-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!isEnabled(byId("fault-start"))) return;
    looked = -1;
    if (await ask("/fault", { scenario: scenario.value, strategy: strategy.value })) byId("next").focus();
  });
  onPress(byId("next"), () => {
    looked = -1;
    setEnabled(byId("next"), false);
    ask("/fault/next", { id: state.fault.id, steps: state.fault.steps.length + state.fault.more });
  });
  onPress(byId("finish"), () => ask("/fault/finish", { id: state.fault.id }));
  onPress(byId("fault-cancel"), () => ask("/cancel", { id: state.fault.id }));
  function lookAt(step) {
    looked = step;
    showFault(state.fault, state.busy);
  }
  byId("now").addEventListener("click", () => { lookAt(-1); byId("next").focus(); });

  // shownOf makes rows of a definition list. A value that differs from the one before is marked.
  function shownOf(now, before) {
    return now.flatMap(([name, value, big]) => {
      const was = before && before.find(([other]) => other === name);
      const text = value instanceof Node ? value.textContent : String(value);
      const changed = was && (was[1] instanceof Node ? was[1].textContent : String(was[1])) !== text;
      return [h("dt", null, name), h("dd", { class: big ? "big" : null },
        changed && !(value instanceof Node) ? h("span", { class: "changed" }, text) : value)];
    });
  }
  const store = (title, rows, before) =>
    h("div", { class: "store" }, h("h3", null, title), h("dl", null, shownOf(rows, before)));

  function mysqlRows(c, sold) {
    if (!c.mysql) return [["", c.silent.includes("mysql") ? "MySQL does not answer" : "has no such item"]];
    const rows = [["stock", c.mysql.stock, true]];
    if (c.mysql.units !== null && sold === "units") rows.push(["stock in units", c.mysql.units]);
    if (c.mysql.slots !== null && !["mysql", "redis", "units"].includes(sold)) rows.push(["stock in slots", c.mysql.slots]);
    rows.push(["version", c.mysql.version]);
    if (c.mysql.fence > 0) rows.push(["fence", `token ${c.mysql.fence} of ${c.mysql.issuer}`]);
    if (c.mysql.ledger > 0) rows.push(["sold by the ledger", c.mysql.ledger]);
    return rows;
  }
  function redisRows(c) {
    if (!c.redis) return [["", c.silent.includes("redis") ? "Redis does not answer" : "is not looked at"]];
    const rows = [["stock", c.redis.stock === null ? "none" : c.redis.stock, true]];
    if (c.redis.fence) rows.push(["fence", c.redis.fence]);
    if (c.redis.stream > 0) rows.push(["sales not yet in MySQL", c.redis.stream]);
    return rows;
  }
  // A full bar is a full lease.
  function leaseLeft(ms, lease) {
    const bar = h("i", null);
    bar.style.width = Math.min(100, 100 * ms / Math.max(lease, 1)) + "%";
    return h("span", null, `${(ms / 1000).toFixed(1)} s`, h("span", { class: "ttl", "aria-hidden": "true" }, bar));
  }
  // withoutLease says how long a lock lasts that does not expire.
  const withoutLease = (lock) => lock.server === "mysql" ? "as long as the connection" : "none: it does not expire";
  function lockRows(lock, holder, lease) {
    const rows = [["held by", lock.owner ? holder || "a client that is not known" : "nobody", true], ["key", lock.key]];
    if (lock.owner) {
      rows.push(["its value", lock.owner]);
      rows.push(lock.ttl_ms < 0 ? ["lease", withoutLease(lock)] : ["lease ends in", leaseLeft(lock.ttl_ms, lease)]);
    }
    if (lock.waiting && lock.waiting.length > 0) rows.push(["queue", lock.waiting.join(", ")]);
    if (lock.token) rows.push(["last fencing token", lock.token]);
    return rows;
  }
  const sells = (kind, sold) =>
    kind === sold || kind === "mysql" && (sold === "slots" || sold === "units") ? " – the strategy sells here" : "";
  // leaseOf returns the longest time to expiry of a lock that was seen in a fault: about its lease, in ms.
  function leaseOf(lock, fault) {
    const scenes = [...fault.steps.map((step) => step.scene), fault.now].filter(Boolean);
    return Math.max(...scenes.flatMap((scene) => scene.locks || [])
      .filter((seen) => seen.server === lock.server && seen.key === lock.key).map((seen) => seen.ttl_ms));
  }
  const states = { running: "ok", stopped: "halt", dead: "bad" };
  function sceneOf(scene, before, fault) {
    const sold = fault.store;
    const asking = scene.asking.map((a) => {
      const where = a.replica ? `asks the ${a.replica}` : "asks the stores directly";
      const since = `${(a.for_ms / 1000).toFixed(1)} s without an answer`;
      return h("li", null, h("b", null, a.client), ` ${where}: `, a.held ? `a proxy holds ${a.held}, ` : "", since);
    });
    return [
      store("MySQL" + sells("mysql", sold), mysqlRows(scene, sold), before && mysqlRows(before, sold)),
      store("Redis" + sells("redis", sold), redisRows(scene), before && redisRows(before)),
      scene.locks.length
        ? scene.locks.map((lock, i) =>
          store("Lock in " + lock.server, lockRows(lock, scene.holders[i], leaseOf(lock, fault))))
        : h("div", { class: "store" }, h("h3", null, "Lock"), h("p", null, "Nobody holds one in Redis or MySQL.")),
      h("div", { class: "store" }, h("h3", null, "Requests without an answer"),
        asking.length ? h("ul", { class: "evidence" }, asking) : h("p", null, "none")),
      h("div", { class: "store" }, h("h3", null, "Replicas of the fault"), h("p", null,
        h("span", { class: "named" }, "victim ", word(states[scene.victim], scene.victim)), " ",
        h("span", { class: "named" }, "survivor ", word(states[scene.survivor], scene.survivor)))),
      scene.silent.length ? h("p", { class: "faint" }, "No answer from " + scene.silent.join(", ")) : null,
    ];
  }

  function claimKept(fault, late) {
    if (fault.outcome === "inconclusive") return null;
    if (fault.claim_held) return word("ok", "the claim holds");
    return late ? null : word("bad", "the claim does not hold");
  }
  const outcomes = { safe: "ok", unsafe: "bad", blocked: "late", unavailable: "halt" };
  function showOutcome(fault) {
    if (!fault.ended) return null;
    if (fault.outcome === "canceled") return h("p", { class: "verdict-line" }, word("open", "canceled"));
    const kind = outcomes[fault.outcome.split(" ")[0]] || "open";
    const late = !fault.claim_held && fault.read_s > 1;
    const leased = fault.steps.some((step) => step.scene.locks?.some((lock) => lock.ttl_ms >= 0));
    return [
      h("p", { class: "verdict-line" }, "Outcome: ", word(kind, fault.outcome)),
      fault.evidence.length ? h("ul", { class: "evidence" }, fault.evidence.map((line) => h("li", null, line))) : null,
      fault.claimed ? h("p", null, `Claimed: ${fault.claimed}. `, claimKept(fault, late)) : null,
      late ? h("p", null, `This proves little: the fault waited for you for ${fault.read_s.toFixed(0)} s` +
        (leased ? ", and a lease can end meanwhile" : "") + ". Start it again, and run it to the end.") : null,
      reportLink(fault.report),
      fault.replay ? h("p", { class: "faint" }, "In a terminal: ", h("code", null, fault.replay)) : null,
    ];
  }

  const kinds = { strike: "Fault:", proof: "Proof:", mended: "Mended:" };
  function showSteps(fault) {
    const list = byId("steps");
    for (const [i, step] of fault.steps.entries()) {
      if (i < list.children.length) continue;
      const kind = kinds[step.kind] ? h("b", null, kinds[step.kind] + " ") : null;
      list.append(h("li", null, h("button", { type: "button", click: () => lookAt(i) },
        h("time", null, `${step.after_s.toFixed(2)} s`), h("span", null, kind, step.text.replace(/^proof: /, "")))));
    }
    setHidden("more", fault.more === 0);
    setText("more", `${plural(fault.more, "more step")}, in the report`);
    const current = looked >= 0 ? looked : fault.steps.length - 1;
    for (const [i, item] of [...list.children].entries()) {
      if (i === current) item.firstChild.setAttribute("aria-current", "step");
      else item.firstChild.removeAttribute("aria-current");
    }
  }

  function showFault(fault, busy) {
    const going = busy === "fault";
    setEnabled(byId("fault-start"), busy === "");
    setEnabled(byId("finish"), going && !fault.free);
    setEnabled(byId("fault-cancel"), going);
    setEnabled(byId("next"), going && fault.waiting);
    if (!fault) return;
    setHidden("fault", false);
    setText("fault-name", `${fault.scenario}, ${fault.strategy}`);
    setText("fault-about", fault.title);
    if (told !== fault.id) {
      told = fault.id;
      looked = -1;
      byId("steps").replaceChildren();
    }
    // The fault may have been begun in another tab, or before a reload.
    if (going && !followed) chooseScenario(fault.scenario, fault.strategy);
    followed = going;
    showSteps(fault);
    setText("fault-phase", fault.ended ? "" : fault.waiting ? "Waiting for “Next step”."
      : fault.steps.length ? "Playing the next step…" : "Starting two replicas for this fault…");
    show("fault-outcome", fault.ended && fault, () => showOutcome(fault));
    const last = fault.steps.length - 1, at = looked >= 0 ? looked : last;
    const past = looked >= 0 || !fault.now;
    const scene = past ? fault.steps[at]?.scene : fault.now;
    setHidden("scene-card", !scene);
    setHidden("scene-back", looked < 0 || fault.ended);
    const when = past && at >= 0 ? `at ${fault.steps[at].after_s.toFixed(2)} s` : "now";
    setText("scene-title", "In the servers " + when);
    if (scene) show("scene", [scene, at], () => sceneOf(scene, fault.steps[at - 1]?.scene, fault));
  }

  // Explore

  const gallery = data("gallery-data"), examples = byId("gallery"), text = byId("script-form").elements.script;
  examples.append(...gallery.map((s) => h("option", null, s.file)));
  const chooseScript = () => { text.value = gallery.find((s) => s.file === examples.value).text; };
  examples.addEventListener("change", chooseScript);
  examples.value = "read-modify-write.star";
  chooseScript();

  async function explore(body) {
    if (await ask("/explore", body)) byId("explored-title").scrollIntoView({ block: "nearest" });
  }
  byId("explore-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!isEnabled(byId("explore"))) return;
    const fields = new FormData(event.target), number = (name) => Number(fields.get(name));
    explore({ strategy: fields.get("strategy"), preemptions: number("preemptions"), faults: number("faults") });
  });
  byId("script-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (isEnabled(byId("script-run"))) explore({ script: text.value, file: fileOf(text.value), preemptions: 3, faults: 1 });
  });
  const fileOf = (script) => gallery.find((s) => s.text === script)?.file || "";
  onPress(byId("explore-cancel"), () => ask("/cancel", { id: state.explored.id }));

  const findings = {
    held: ["ok", "No claim is refuted"], refuted: ["bad", "A claim is refuted"], inconclusive: ["open", "Not all could be judged"],
    canceled: ["open", "Stopped"], failed: ["open", "Failed"],
  };
  let explored = 0; // id of the exploration of which a trace may be shown

  async function openTrace(id) {
    const response = await fetch("/traces/" + id);
    if (!response.ok) return;
    const card = byId("trace");
    card.innerHTML = await response.text(); // made by the templates of the report, which escape everything
    setHidden("trace-card", false);
    stepThrough(card.querySelector(".trace"));
    card.querySelector(".stepper button").focus();
    card.scrollIntoView({ block: "nearest" });
  }

  function traceRow({ name, kind }) {
    const steps = h("span", { class: "faint" });
    let id = 0;
    const element = h("button", { type: "button", class: "button", click: () => openTrace(id) },
      word("bad", kind), " ", name, " ", steps);
    return { element, update: (t) => { id = t.id; steps.textContent = plural(t.steps, "step"); } };
  }

  function showExplored(found, busy) {
    const going = busy === "exploration";
    setEnabled(byId("explore"), busy === "");
    setEnabled(byId("script-run"), busy === "");
    setEnabled(byId("explore-cancel"), going);
    if (!found) return;
    if (explored !== found.id) {
      explored = found.id;
      setHidden("trace-card", true);
    }
    setText("explored-title", found.subject);
    const count = plural(found.schedules, "schedule");
    setText("explored-phase", found.ended ? [count, found.state].filter(Boolean).join(", ")
      : [found.phase, found.schedules ? count : ""].filter(Boolean).join(" "));
    show("explored-outcome", found.ended && [found.result, found.problem, found.report], () => found.ended ? [
      h("p", { class: "verdict-line" }, word(...findings[found.result])),
      found.problem ? h("p", null, found.problem) : null, reportLink(found.report)] : null);
    show("explored-cells", found.cells, (cells) => cells.length === 0 ? null
      : h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What came of the schedules" }, h("table", null,
        h("thead", null, h("tr", null, ["fault", "what came of it", "claim"].map((t) => h("th", { scope: "col" }, t)))),
        h("tbody", null, cells.map((c) => h("tr", null, h("th", { scope: "row" }, c.name),
          h("td", null, word(c.damaged ? "bad" : "ok", c.found)),
          h("td", null, c.held ? c.verdict : word("bad", c.verdict))))))));
    setHidden("traces-title", found.traces.length === 0);
    showRows("traces", found.traces, (t) => t.name + t.kind, traceRow);
    setHidden("explore-command", false);
    byId("explore-command").querySelector("code").textContent = found.command;
  }

  // The state

  let state = null;
  function render(next) {
    if (state && state.id !== next.id) {
      location.reload(); // another lab listens here now
      return;
    }
    state = next;
    showRun(state.run, state.busy);
    showFault(state.fault, state.busy);
    showExplored(state.explored, state.busy);
    for (const [kind, name] of [["run", "run"], ["fault", "fault"], ["exploration", "explore"]]) {
      const tab = byId("tab-" + name), mark = tab.querySelector(".word");
      if (state.busy === kind && !mark) tab.append(word("late", "going on"));
      if (state.busy !== kind && mark) mark.remove();
    }
    document.body.dataset.busy = state.busy;
  }

  const events = new EventSource("/events");
  events.onmessage = (event) => {
    setHidden("offline", true);
    render(JSON.parse(event.data));
  };
  events.onerror = () => {
    setText("offline", "The lab does not answer. This page goes on when it does.");
    setHidden("offline", false);
  };
})();
