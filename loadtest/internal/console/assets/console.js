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

  // show fills an element, unless it shows the same already. What had the focus keeps it.
  const shown = new Map();
  function show(id, value, make) {
    const text = JSON.stringify(value);
    if (shown.get(id) === text) return;
    shown.set(id, text);
    const element = byId(id), focused = element.contains(document.activeElement) && document.activeElement.dataset.key;
    element.replaceChildren(...[make(value)].flat(Infinity).filter((child) => child !== null));
    if (focused) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function setText(id, text) {
    if (byId(id).textContent !== text) byId(id).textContent = text;
  }

  function setHidden(id, hidden) { byId(id).hidden = hidden; }

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

  // lines draws values over time. Each line is [class, values]; the first one has an area below it.
  function lines(times, ...all) {
    const end = Math.max(...times, 1), top = Math.max(...all.flatMap(([, values]) => values), 1);
    const picture = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const [i, [name, values]] of all.entries()) {
      if (values.length < 2) continue;
      const x = times.map((t) => (100 * t / end).toFixed(2));
      const at = values.map((v, n) => `${x[n]},${(39 - 37 * Math.max(v, 0) / top).toFixed(2)}`);
      if (i === 0) picture.append(svg("path", { class: "area", d: `M${x[0]},40 L${at.join(" L")} L${x.at(-1)},40 Z` }));
      picture.append(svg("path", { class: "stroke " + name, d: "M" + at.join(" L") }));
    }
    return picture;
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

  byId("run-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const fields = new FormData(event.target), number = (name) => Number(fields.get(name));
    ask("/run", {
      strategies: fields.getAll("strategy"), users: number("users"), hold_ms: number("hold_ms"),
      workload: fields.get("workload"), requests: number("requests"), rounds: number("rounds"),
      items: number("items"), counts: "1",
    });
  });
  byId("run-cancel").addEventListener("click", () => ask("/cancel"));

  const verdicts = { correct: "ok", wrong: "bad", inconclusive: "open", baseline: "open" };
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
    show("gone", [last.gone, missing], () => last.gone < 0 ? null : [
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
    const most = Math.max(...cell.samples.map((s) => s.inside));
    setText("inside", cell.sections.length > 0 ? `${whole(last.inside)}` : "–");
    show("chart-sections", cell.sections, (sections) => {
      if (sections.length === 0) return null;
      const { picture, span } = bars(sections, cell.allowed);
      setText("sections-key",
        `${sections.length} of the last sections, over ${span.toFixed(1)} ms. At most ${most} were open together. ` +
        (cell.allowed ? "They may overlap: the store, or a check before the write, finds conflicts." : ""));
      return picture;
    });
    if (cell.sections.length === 0) setText("sections-key", "The strategy reports no critical section.");
  }

  function showRun(run, busy) {
    const going = busy === "run";
    byId("run").disabled = busy !== "";
    byId("run-cancel").disabled = !going;
    if (!run) return;
    const cell = run.cell && run.cell.samples.length > 0 ? run.cell : null;
    setText("run-title", cell ? cell.name : going ? "Starting" : "The last run");
    const left = run.left_s > 0 ? `, about ${Math.ceil(run.left_s)} s left` : "";
    const answered = cell && `${whole(cell.samples.at(-1).answered)} of ${plural(cell.requests, "request")}`;
    setText("run-phase", run.ended ? "" : [run.phase + left, answered].filter(Boolean).join(". "));
    const progress = byId("run-progress");
    progress.hidden = run.ended || run.cells === 0;
    progress.max = Math.max(run.cells, 1);
    progress.value = Math.max(run.done, run.rows.length);
    setHidden("tiles", !cell);
    if (cell) showCell(cell);
    setHidden("run-rows", run.rows.length === 0);
    show("rows", run.rows, (rows) => rows.map((row) => h("tr", null,
      h("th", { scope: "row" }, row.name),
      h("td", null, word(verdicts[row.result] || "open", row.result)),
      h("td", { class: "number" }, row.result === "wrong" ? "–" : whole(row.goodput)),
      h("td", null, row.evidence))));
    setHidden("run-verdict", !run.ended);
    if (run.ended) show("run-verdict", [run.result, run.problems, run.report, run.rows], () => {
      const judged = run.rows.filter((row) => row.result !== "baseline" && row.result !== "correct");
      const right = run.rows.filter((row) => row.result === "correct");
      return [
        judged.map((row) => h("div", null,
          h("p", { class: "verdict-line" }, word(verdicts[row.result], row.result), " ", row.name),
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

  const stories = data("stories-data"), tour = data("tour-data");
  const scenario = byId("scenario"), strategy = byId("strategy"), stops = byId("tour");
  scenario.append(...stories.map((s) => h("option", { value: s.name }, s.name)));
  stops.append(...tour.map((t, i) => h("option", { value: i }, `${i + 1}. ${t.why}`)));
  stops.append(h("option", { value: "" }, "(none)"));
  function chooseScenario(name, who) {
    const story = stories.find((s) => s.name === name);
    scenario.value = name;
    strategy.replaceChildren(...story.strategies.map((s) => h("option", null, s)));
    if (story.strategies.includes(who)) strategy.value = who;
    setText("story-title", story.title);
    const i = tour.findIndex((t) => t.scenario === name && t.strategy === strategy.value);
    stops.value = i < 0 ? "" : i;
  }
  stops.addEventListener("change", () => {
    if (stops.value !== "") chooseScenario(tour[stops.value].scenario, tour[stops.value].strategy);
  });
  scenario.addEventListener("change", () => chooseScenario(scenario.value, strategy.value));
  strategy.addEventListener("change", () => chooseScenario(scenario.value, strategy.value));
  chooseScenario(tour[0].scenario, tour[0].strategy);

  let followed = false; // whether the form shows the story that goes on
  let looked = -1; // at this step; -1: at what is now
  byId("story-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    looked = -1;
    if (await ask("/story", { scenario: scenario.value, strategy: strategy.value })) byId("next").focus();
  });
  byId("next").addEventListener("click", () => {
    looked = -1;
    if (byId("next").getAttribute("aria-disabled") === "true") return;
    byId("next").setAttribute("aria-disabled", true);
    ask("/story/next", { steps: state.story.steps.length + state.story.more });
  });
  byId("finish").addEventListener("click", () => ask("/story/finish"));
  byId("story-cancel").addEventListener("click", () => ask("/cancel"));
  function lookAt(step) {
    looked = step;
    showStory(state.story, state.busy);
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
    if (c.mysql.slots !== null && sold !== "mysql" && sold !== "redis") rows.push(["stock in slots", c.mysql.slots]);
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
  function expiry(ms) {
    if (ms < 0) return h("span", null, "never");
    const bar = h("i", null);
    bar.style.width = Math.min(100, ms / 20) + "%";
    return h("span", null, `${(ms / 1000).toFixed(1)} s`, h("span", { class: "ttl", "aria-hidden": "true" }, bar));
  }
  function lockRows(lock, holder) {
    const rows = [["held by", lock.owner ? holder || "a client that is not known" : "nobody", true], ["key", lock.key]];
    if (lock.owner) rows.push(["its value", lock.owner], ["expires in", expiry(lock.ttl_ms)]);
    if (lock.waiting && lock.waiting.length > 0) rows.push(["queue", lock.waiting.join(", ")]);
    if (lock.token) rows.push(["last fencing token", lock.token]);
    return rows;
  }
  const sells = (kind, sold) =>
    kind === sold || kind === "mysql" && sold === "slots" ? " – the strategy sells here" : "";
  function sceneOf(scene, before, sold) {
    const asking = scene.asking.map((a) => {
      const where = a.replica ? `asks the ${a.replica}` : "asks the stores directly";
      const since = `${(a.for_ms / 1000).toFixed(1)} s without an answer`;
      return h("li", null, h("b", null, a.client), ` ${where}: `, a.parked ? `parked at ${a.parked}, ` : "", since);
    });
    const states = { running: "ok", stopped: "halt", dead: "bad" };
    return [
      store("MySQL" + sells("mysql", sold), mysqlRows(scene, sold), before && mysqlRows(before, sold)),
      store("Redis" + sells("redis", sold), redisRows(scene), before && redisRows(before)),
      scene.locks.length
        ? scene.locks.map((lock, i) => store("Lock in " + lock.server, lockRows(lock, scene.holders[i])))
        : h("div", { class: "store" }, h("h3", null, "Lock"), h("p", null, "Nobody holds one in Redis or MySQL.")),
      h("div", { class: "store" }, h("h3", null, "Requests without an answer"),
        asking.length ? h("ul", { class: "evidence" }, asking) : h("p", null, "none")),
      h("div", { class: "store" }, h("h3", null, "Replicas of the story"), h("p", null,
        "victim ", word(states[scene.victim], scene.victim),
        " survivor ", word(states[scene.survivor], scene.survivor))),
      scene.silent.length ? h("p", { class: "faint" }, "No answer from " + scene.silent.join(", ")) : null,
    ];
  }

  const outcomes = { safe: "ok", unsafe: "bad", blocked: "late", unavailable: "halt" };
  function showOutcome(story) {
    if (!story.ended) return null;
    if (story.outcome === "canceled") return h("p", { class: "verdict-line" }, word("open", "canceled"));
    const kind = outcomes[story.outcome.split(" ")[0]] || "open";
    const late = !story.claim_held && story.read_s > 1;
    return [
      h("p", { class: "verdict-line" }, "Outcome: ", word(kind, story.outcome)),
      story.evidence.length ? h("ul", { class: "evidence" }, story.evidence.map((line) => h("li", null, line))) : null,
      story.claimed ? h("p", null, `Claimed: ${story.claimed.replaceAll("-", " ")}. `,
        story.outcome === "inconclusive" ? null : story.claim_held ? word("ok", "the claim holds") : late ? null : word("bad", "the claim does not hold")) : null,
      late ? h("p", null, `This proves little: the story waited for you for ${story.read_s.toFixed(0)} s, ` +
        "and leases ended meanwhile. Start it again, and run it to the end.") : null,
      reportLink(story.report),
      story.replay ? h("p", { class: "faint" }, "In a terminal: ", h("code", null, story.replay)) : null,
    ];
  }

  const kinds = { strike: "Fault:", proof: "Proof:", mended: "Mended:" };
  function showSteps(story) {
    const list = byId("steps"), started = story.scenario + " " + story.strategy;
    if (list.dataset.story !== started || list.children.length > story.steps.length) {
      list.replaceChildren();
      list.dataset.story = started;
    }
    for (const [i, step] of story.steps.entries()) {
      if (i < list.children.length) continue;
      const kind = kinds[step.kind] ? h("b", null, kinds[step.kind] + " ") : null;
      list.append(h("li", null, h("button", { type: "button", click: () => lookAt(i) },
        h("time", null, `${step.after_s.toFixed(2)} s`), h("span", null, kind, step.text.replace(/^proof: /, "")))));
    }
    setHidden("more", story.more === 0);
    setText("more", `${plural(story.more, "more step")}, in the report`);
    const current = looked >= 0 ? looked : story.steps.length - 1;
    for (const [i, item] of [...list.children].entries()) {
      if (i === current) item.firstChild.setAttribute("aria-current", "step");
      else item.firstChild.removeAttribute("aria-current");
    }
  }

  function showStory(story, busy) {
    const going = busy === "story";
    byId("story-start").disabled = busy !== "";
    byId("finish").disabled = !going || story.free;
    byId("story-cancel").disabled = !going;
    byId("next").setAttribute("aria-disabled", !(going && story.waiting));
    if (!story) return;
    setHidden("story", false);
    setText("story-name", `${story.scenario}, ${story.strategy}`);
    setText("story-about", story.title);
    if (looked >= story.steps.length) looked = -1;
    // The story may have been begun in another tab, or before a reload.
    if (going && !followed) chooseScenario(story.scenario, story.strategy);
    followed = going;
    showSteps(story);
    setText("story-phase", story.ended ? "" : story.waiting ? "Waiting for “Next step”."
      : story.steps.length ? "Playing the next step…" : "Starting two replicas for this story…");
    show("story-outcome", story.ended && story, () => showOutcome(story));
    const last = story.steps.length - 1, at = looked >= 0 ? looked : last;
    const past = looked >= 0 || !story.now;
    const scene = past ? story.steps[at]?.scene : story.now;
    setHidden("scene-card", !scene);
    setHidden("scene-back", looked < 0 || story.ended);
    const when = past && at >= 0 ? `at ${story.steps[at].after_s.toFixed(2)} s` : "now";
    setText("scene-title", "In the servers " + when);
    if (scene) show("scene", [scene, at], () => sceneOf(scene, story.steps[at - 1]?.scene, story.store));
  }

  // Break it

  const states = { running: ["ok", "running"], stopped: ["halt", "stopped"], dead: ["bad", "dead"] };
  function replicaCard(r) {
    const act = (action, text, enabled, kind) => h("button", {
      type: "button", class: "button " + (kind || ""), "data-key": r.name + action, disabled: !enabled,
      "aria-label": `${text} ${r.name}`, click: () => ask(`/replicas/${r.name}/${action}`),
    }, text);
    return h("div", { class: "replica" },
      h("h3", null, r.name, word(...states[r.state])),
      h("p", { class: "faint" }, `pid ${r.pid}, `, h("code", null, r.url)),
      h("p", { class: "actions" },
        r.state === "stopped" ? act("continue", "Continue", true) : act("stop", "Stop", r.state === "running"),
        act("kill", "Kill", r.state !== "dead", "danger"),
        act("start", "Start again", r.state === "dead")));
  }
  byId("replicas").addEventListener("click", (event) => {
    const key = event.target.dataset?.key || "";
    if (key.endsWith("start")) event.target.textContent = "Starting…";
  });

  function submits(id, path, body) {
    byId(id).addEventListener("submit", (event) => {
      event.preventDefault();
      ask(path, body(new FormData(event.target)));
    });
  }
  submits("stock-form", "/stock", (f) => ({ stock: Number(f.get("stock")) }));
  submits("restock-form", "/restock", (f) => ({ store: f.get("store"), count: Number(f.get("count")) }));
  submits("sale-form", "/sales", (f) => ({
    strategy: f.get("strategy"), count: Number(f.get("count")), replica: f.get("replica"), pause: f.get("pause") || "",
  }));

  function row(text, key, button, action, label) {
    const attributes = { type: "button", class: "button danger", "data-key": key, "aria-label": label, click: action };
    return h("div", { class: "row" }, h("div", null, text), h("button", attributes, button));
  }

  function showLab(lab) {
    show("replicas", lab.replicas, (all) => all.map(replicaCard));
    if (lab.contents) {
      show("contents", lab.contents, (c) => [store("MySQL", mysqlRows(c)), store("Redis", redisRows(c))]);
      show("locks", lab.contents.locks, (locks) => locks.length === 0 ? h("p", { class: "faint" }, "Nobody holds one.")
        : locks.map((l) => row([h("code", null, l.key), ` in ${l.server}, `, l.owner ? "held" : "free", ", expires in ",
          l.ttl_ms < 0 ? "never" : `${(l.ttl_ms / 1000).toFixed(0)} s`,
          l.waiting && l.waiting.length ? `, ${l.waiting.length} wait` : ""],
        l.server + l.key, "Delete", () => ask("/locks/delete", { server: l.server, key: l.key }), `Delete ${l.key}`)));
    }
    if (byId("pauses")) show("pauses", lab.pauses, (pauses) => !pauses || pauses.length === 0
      ? h("p", { class: "faint" }, "None is parked.")
      : pauses.map((p) => row([h("code", null, p.request_id), ` at ${p.point}, ${p.replica}`], p.request_id, "Release",
        () => ask("/pauses/release", { replica: p.replica, request_id: p.request_id }), `Release ${p.request_id}`)));
    show("sales", lab.sales, (sales) => (sales || []).toReversed().map((s) => h("li", null, s.asked + ": ",
      s.answer ? word(s.sold ? "ok" : "late", s.answer) : h("span", { class: "faint" }, "no answer yet"))));
    show("log", lab.log, (log) => (log || []).toReversed().map((line) => h("li", null, line)));
    if (!lab.log || lab.log.length === 0) show("log", 0, () => h("li", { class: "faint" }, "Nothing yet."));
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
    showStory(state.story, state.busy);
    showLab(state.lab);
    for (const kind of ["run", "story"]) {
      const tab = byId("tab-" + kind), mark = tab.querySelector(".word");
      if (state.busy === kind && !mark) tab.append(word("late", "going on"));
      if (state.busy !== kind && mark) mark.remove();
    }
    document.body.dataset.busy = state.busy;
  }

  const events = new EventSource("/events");
  events.onmessage = (event) => {
    setHidden("link", true);
    render(JSON.parse(event.data));
  };
  events.onerror = () => {
    setText("link", "The lab does not answer. This page goes on when it does.");
    setHidden("link", false);
  };
})();
