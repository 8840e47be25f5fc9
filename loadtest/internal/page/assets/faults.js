"use strict";
// The matrix of faults: move with the arrow keys, open a fault.
(() => {
  const faults = JSON.parse(document.getElementById("faults-data").textContent);
  const judgements = { skip: "It was not played.", open: "That could not be judged." }; // by the class of the outcome
  const dialog = document.getElementById("fault");

  function element(tag, properties, ...children) {
    const e = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      if (name in e) e[name] = value;
      else e.setAttribute(name, value);
    }
    e.append(...children.filter(child => child));
    return e;
  }

  const seconds = ns => (ns / 1e9).toFixed(2) + " s";

  function steps(fault) {
    const list = element("ol", {className: "steps"});
    const words = {proof: "Proof: ", strike: "Fault: "};
    for (const {after_ns, text, kind} of fault.steps || []) {
      list.append(element("li", {className: kind || ""}, element("time", {}, seconds(after_ns)),
        element("span", {}, words[kind] ? element("b", {}, words[kind]) : "", text)));
    }
    return list;
  }

  function evidence(fault) {
    const found = fault.evidence || [];
    if (found.length === 0) return null;
    return element("div", {}, element("h3", {}, "Evidence"),
      element("ul", {className: "evidence"}, ...found.map(text => element("li", {}, text))));
  }

  function open(number) {
    const fault = faults[number];
    const close = element("button", {type: "button", className: "button close", autofocus: true}, "Close");
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(...[
      element("div", {className: "fault-head"},
        element("div", {},
          element("p", {className: "faint"}, element("code", {}, fault.scenario)),
          element("h2", {id: "fault-title"}, element("code", {}, fault.strategy), " ",
            element("span", {className: "word " + fault.class}, fault.found))),
        close),
      element("p", {className: "big"}, fault.title),
      element("p", {}, (fault.claims ? "It claims: " + fault.claims + ". " : "") +
        (judgements[fault.class] || (fault.held ? "That held." : "That did not hold.")) + (fault.repeats ? " " + fault.repeats : "")),
      element("h3", {}, "Step by step"), steps(fault),
      element("div", {className: "timeline", hidden: true, "data-fault": number}),
      element("div", {className: "injection"}, element("h3", {}, "What shows that the fault struck"),
        element("p", {}, fault.proof || "Nothing.")),
      evidence(fault),
      element("h3", {}, "Play it again, step by step"),
      element("div", {className: "replay"}, element("code", {tabIndex: 0}, fault.replay), copyButton(fault.replay, dialog)),
    ].filter(child => child));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    history.replaceState(null, "", "#" + fault.scenario + "/" + fault.strategy);
    dialog.dispatchEvent(new CustomEvent("opened", {bubbles: true, detail: dialog}));
  }

  dialog.addEventListener("close", () => {
    if (!dialog.open) history.replaceState(null, "", "#"); // the event may come after another fault was opened
  });
  dialog.addEventListener("click", event => {
    if (event.target === dialog) dialog.close(); // beside the fault
  });

  // An opened row lists the faults of its strategy.
  document.addEventListener("opened", event => {
    for (const list of event.detail.querySelectorAll("[data-faults]")) {
      faults.forEach((fault, number) => {
        if (fault.strategy !== list.dataset.faults) return;
        list.append(element("li", {}, element("span", {className: "word " + fault.class}, fault.found), " ",
          element("button", {type: "button", className: "link", "data-fault": number}, fault.scenario)));
      });
    }
  });

  const find = name => faults.findIndex(s => s.scenario + "/" + s.strategy === name);
  document.addEventListener("click", event => {
    const button = event.target.closest("button[data-fault]");
    if (button) open(Number(button.dataset.fault));
  });

  // Of the whole grid, only one cell is reached with Tab.
  const grid = document.querySelector(".matrix");
  if (grid) {
    const first = grid.querySelector(".cell");
    if (first) first.tabIndex = 0;
    const move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]};
    grid.addEventListener("keydown", event => {
      const by = move[event.key];
      const from = event.target.closest("td");
      if (!by || !from) return;
      event.preventDefault();
      let [y, x] = [from.parentElement.rowIndex + by[0], from.cellIndex + by[1]];
      for (; grid.rows[y] && grid.rows[y].cells[x]; y += by[0], x += by[1]) {
        const button = grid.rows[y].cells[x].querySelector(".cell");
        if (!button) continue;
        event.target.tabIndex = -1;
        button.tabIndex = 0;
        button.focus();
        return;
      }
    });
  }

  // The address of the page may name a cell.
  function openNamed() {
    let name;
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      return; // a mistyped address
    }
    const number = find(name);
    if (number >= 0) open(number);
  }

  window.addEventListener("hashchange", openNamed);
  openNamed();
})();
