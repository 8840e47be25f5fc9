"use strict";
// The timelines of a report: an opened row has its windows beside it, a story has them in the data of the stories.
(() => {
  let stories;
  function windowsOf(element) {
    const own = element.querySelector("script");
    if (own) return JSON.parse(own.textContent);
    stories = stories || JSON.parse(document.getElementById("stories").textContent);
    const story = stories[element.dataset.story];
    const marks = (story.steps || []).map(({after_ns, text}) => ({at: after_ns, text}));
    const strike = (story.steps || []).find(({kind}) => kind === "strike");
    return (story.windows || []).map(w => ({...w, marks, focus: strike && strike.after_ns}));
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
