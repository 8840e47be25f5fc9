"use strict";
// The timelines of a report: an opened row has its windows beside it, a fault has them in the data of the faults.
(() => {
  let faults;
  function windowsOf(element) {
    const own = element.querySelector("script");
    if (own) return JSON.parse(own.textContent);
    faults = faults || JSON.parse(document.getElementById("faults-data").textContent);
    const fault = faults[element.dataset.fault];
    const marks = (fault.steps || []).map(({after_ns, text}) => ({at: after_ns, text}));
    const strike = (fault.steps || []).find(({kind}) => kind === "strike");
    return (fault.windows || []).map(w => ({...w, marks, focus: strike && strike.after_ns}));
  }

  document.addEventListener("opened", event => {
    for (const element of event.detail.querySelectorAll(".timeline")) {
      const windows = windowsOf(element);
      const title = document.createElement("h3");
      title.textContent = "Timeline";
      element.replaceChildren(title);
      element.hidden = windows.length === 0;
      for (const w of windows) {
        const place = document.createElement("div");
        element.append(place);
        drawTimeline(place, w);
      }
    }
  });
})();
