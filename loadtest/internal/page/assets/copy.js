"use strict";
// copyButton makes a button that copies a text. place is where a selection is made if the browser wants one.
function copyButton(text, place) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Some browsers permit this only to pages that were not opened from a file.
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "unseen";
      place.append(area);
      area.select();
      copied = document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return button;
}
