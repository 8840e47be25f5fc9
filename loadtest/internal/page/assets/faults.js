"use strict";
// The matrix of faults: move with the arrow keys, open a story.
(() => {
  const stories = JSON.parse(document.getElementById("stories").textContent);
  const judgements = { skip: "It was not played.", open: "That could not be judged." }; // by the class of the outcome
  const dialog = document.getElementById("story");

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

  function steps(story) {
    const list = element("ol", {className: "steps"});
    const words = {proof: "Proof: ", strike: "Fault: "};
    for (const {after_ns, text, kind} of story.steps || []) {
      list.append(element("li", {className: kind || ""}, element("time", {}, seconds(after_ns)),
        element("span", {}, words[kind] ? element("b", {}, words[kind]) : "", text)));
    }
    return list;
  }

  function evidence(story) {
    const found = story.evidence || [];
    if (found.length === 0) return null;
    return element("div", {}, element("h3", {}, "Evidence"),
      element("ul", {className: "evidence"}, ...found.map(text => element("li", {}, text))));
  }

  function open(number) {
    const story = stories[number];
    const close = element("button", {type: "button", className: "button close", autofocus: true}, "Close");
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(...[
      element("div", {className: "story-head"},
        element("div", {},
          element("p", {className: "faint"}, element("code", {}, story.scenario)),
          element("h2", {id: "story-title"}, element("code", {}, story.strategy), " ",
            element("span", {className: "word " + story.class}, story.found))),
        close),
      element("p", {className: "big"}, story.title),
      element("p", {}, (story.claims ? "It claims: " + story.claims + ". " : "") +
        (judgements[story.class] || (story.held ? "That held." : "That did not hold.")) + (story.repeats ? " " + story.repeats : "")),
      element("h3", {}, "Step by step"), steps(story),
      element("div", {className: "timeline", hidden: true, "data-story": number}),
      element("div", {className: "injection"}, element("h3", {}, "What shows that the fault struck"),
        element("p", {}, story.proof || "Nothing.")),
      evidence(story),
      element("h3", {}, "Play it again, step by step"),
      element("div", {className: "replay"}, element("code", {tabIndex: 0}, story.replay), copyButton(story.replay, dialog)),
    ].filter(child => child));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    history.replaceState(null, "", "#" + story.scenario + "/" + story.strategy);
    dialog.dispatchEvent(new CustomEvent("opened", {bubbles: true, detail: dialog}));
  }

  dialog.addEventListener("close", () => {
    if (!dialog.open) history.replaceState(null, "", "#"); // the event may come after another story was opened
  });
  dialog.addEventListener("click", event => {
    if (event.target === dialog) dialog.close(); // beside the story
  });

  // An opened row lists the stories of its strategy.
  document.addEventListener("opened", event => {
    for (const list of event.detail.querySelectorAll("[data-faults]")) {
      stories.forEach((story, number) => {
        if (story.strategy !== list.dataset.faults) return;
        list.append(element("li", {}, element("span", {className: "word " + story.class}, story.found), " ",
          element("button", {type: "button", className: "link", "data-story": number}, story.scenario)));
      });
    }
  });

  const find = name => stories.findIndex(s => s.scenario + "/" + s.strategy === name);
  document.addEventListener("click", event => {
    const button = event.target.closest("button[data-story]");
    if (button) open(Number(button.dataset.story));
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
