"use strict";
// Charts of sweeps: a button shows one line, and the others faintly.
for (const sweep of document.querySelectorAll(".sweep")) {
  const buttons = [...sweep.querySelectorAll("[data-line]")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const chosen = button.getAttribute("aria-pressed") !== "true";
      for (const other of buttons) other.setAttribute("aria-pressed", String(chosen && other === button));
      for (const curve of sweep.querySelectorAll("[data-curve]")) {
        curve.classList.toggle("behind", chosen && curve.dataset.curve !== button.dataset.line);
      }
    });
  }
}
