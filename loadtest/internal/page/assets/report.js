"use strict";
// The table of strategies: sort, filter, open a row.
(() => {
  const table = document.getElementById("rows");
  if (!table) return;
  const heads = [...table.querySelectorAll("thead th")];
  const filters = [...document.querySelectorAll("[data-filter]")];
  const known = document.getElementById("known");

  // value is what a row is sorted by: a number, or a text in the first column.
  const value = (row, column) => {
    const sort = row.children[column].dataset.sort;
    return column === 0 ? sort : Number(sort);
  };

  // Strategies that are not ranked come last in every column of figures: their speed means nothing.
  const figures = column => column >= 2 && column <= 5;

  function sortBy(column, descending) {
    const sign = descending ? -1 : 1;
    for (const body of table.tBodies) {
      const rows = [...body.querySelectorAll("tr.strategy")];
      rows.sort((a, b) => {
        if (figures(column)) {
          const last = Number(!("ranked" in a.dataset)) - Number(!("ranked" in b.dataset));
          if (last) return last;
        }
        const x = value(a, column), y = value(b, column);
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
      for (const row of rows) {
        const opened = openedRow(row);
        body.append(row);
        if (opened) body.append(opened);
      }
    }
    heads.forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      // Larger is better in the columns of rates, so these begin with the largest.
      sortBy(column, now ? now === "ascending" : column === 2 || column === 3);
    });
  });

  function openedRow(row) {
    const next = row.nextElementSibling;
    return next && next.classList.contains("opened") ? next : null;
  }

  function toggle(row) {
    const button = row.querySelector(".opener");
    const opened = openedRow(row);
    button.setAttribute("aria-expanded", String(!opened));
    row.classList.toggle("is-open", !opened);
    if (opened) {
      opened.remove();
      return;
    }
    const line = document.createElement("tr");
    line.className = "opened";
    line.id = "opened-" + row.id;
    line.setAttribute("role", "row");
    const cell = line.insertCell();
    cell.colSpan = heads.length;
    cell.setAttribute("role", "cell");
    cell.append(document.getElementById("details-" + row.id).content.cloneNode(true));
    row.after(line);
    row.dispatchEvent(new CustomEvent("opened", {bubbles: true, detail: cell}));
  }

  table.addEventListener("click", event => {
    const row = event.target.closest("tr.strategy");
    if (row && event.target.closest(".opener")) toggle(row);
  });

  function filter() {
    let shown = 0, all = 0;
    for (const body of table.tBodies) {
      let any = false;
      for (const row of body.querySelectorAll("tr.strategy")) {
        all++;
        const facts = {...row.dataset, load: body.dataset.load};
        const hide = filters.some(f => f.value && facts[f.dataset.filter] !== f.value) ||
          (known && known.getAttribute("aria-pressed") === "true" && !("known" in row.dataset));
        row.hidden = hide;
        const opened = openedRow(row);
        if (opened) opened.hidden = hide;
        if (hide) continue;
        shown++;
        any = true;
      }
      body.hidden = !any;
    }
    document.getElementById("shown").textContent = shown === all ? all + " rows" : shown + " of " + all + " rows";
  }

  // The rows are written by their share of noop, if there is one.
  if (table.querySelector("[data-ranked] > :nth-child(4):not(:empty)")) heads[3].setAttribute("aria-sort", "descending");

  for (const f of filters) f.addEventListener("change", filter);
  if (known) {
    known.addEventListener("click", () => {
      known.setAttribute("aria-pressed", String(known.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  filter();
})();
