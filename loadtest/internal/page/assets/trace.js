"use strict";
// stepThrough lets a person step through a trace, forwards and backwards. Without it, the whole trace is shown.
function stepThrough(trace) {
  const steps = [...trace.querySelectorAll(".schedule > li")];
  const status = document.createElement("span");
  status.className = "faint";
  status.setAttribute("role", "status");
  let at = steps.length; // steps that are shown

  function show(n, say) {
    at = Math.max(1, Math.min(n, steps.length));
    steps.forEach((step, i) => {
      step.classList.toggle("later", i >= at);
      if (say && i === at - 1) step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    });
    back.setAttribute("aria-disabled", at === 1);
    forth.setAttribute("aria-disabled", at === steps.length);
    status.textContent = `step ${at} of ${steps.length}`;
    if (say) steps[at - 1].scrollIntoView({block: "nearest"});
  }

  function button(text, name, to) {
    const b = document.createElement("button");
    b.type = "button";
    b.className = "button";
    b.textContent = text;
    b.setAttribute("aria-label", name);
    b.addEventListener("click", () => show(to(), true));
    return b;
  }
  const first = button("|◀", "First step", () => 1);
  const back = button("◀", "Step back", () => at - 1);
  const forth = button("▶", "Step forward", () => at + 1);
  const all = button("▶|", "Whole trace", () => steps.length);
  const tools = document.createElement("div");
  tools.className = "stepper no-print";
  tools.setAttribute("role", "group");
  tools.setAttribute("aria-label", "Step through the trace; also with the arrow keys");
  tools.append(first, back, forth, all, status);
  trace.querySelector(".lanes").before(tools);

  tools.addEventListener("keydown", event => {
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 1, End: steps.length}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  });
  for (const box of trace.querySelectorAll(".replay")) box.append(copyButton(box.textContent, box));
  show(steps.length, false);
}

for (const trace of document.querySelectorAll("article.trace")) stepThrough(trace);
