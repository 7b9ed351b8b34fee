"use strict";
(() => {
  const table = document.querySelector("table.variables");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const original = [...rows];
  const controls = document.querySelector(".controls");
  const search = controls.querySelector("input");
  const output = controls.querySelector("output");
  const badOnly = controls.querySelector("button[data-bad]");
  const kinds = [...controls.querySelectorAll("button[data-kind]")];
  const words = rows.map((row) => [0, 2, 3].map((n) => row.cells[n].textContent).join(" ").toLowerCase());
  const pressed = (button) => button !== null && button.getAttribute("aria-pressed") === "true";

  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const of = new Set(kinds.filter(pressed).map((button) => button.dataset.kind));
    let shown = 0;
    original.forEach((row, n) => {
      const fits = (of.size === 0 || of.has(row.dataset.kind))
        && (!pressed(badOnly) || "bad" in row.dataset)
        && wanted.every((word) => words[n].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    output.textContent = shown === rows.length ? `${shown} variables` : `${shown} of ${rows.length} variables`;
  }

  // Numbers stand in <data>; what has none comes last, whichever way the others go.
  function key(row, column, numeric) {
    const cell = row.cells[column];
    if (!numeric) return cell ? cell.textContent : "";
    const data = cell && cell.querySelector("data");
    return data && data.value !== "" ? Number(data.value) : NaN;
  }

  const byText = new Intl.Collator("en", { numeric: true }).compare;

  function sort(column, title) {
    const numeric = title.classList.contains("n");
    const was = title.getAttribute("aria-sort");
    const first = numeric ? "descending" : "ascending";
    const second = numeric ? "ascending" : "descending";
    const now = was === null ? first : was === first ? second : null;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    let ordered = original;
    if (now !== null) {
      title.setAttribute("aria-sort", now);
      const sign = now === "ascending" ? 1 : -1;
      const keyed = original.map((row) => [key(row, column, numeric), row]);
      keyed.sort(([a], [b]) => {
        if (!numeric) return sign * byText(a, b);
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return sign * (a - b);
      });
      ordered = keyed.map(([, row]) => row);
    }
    body.append(...ordered);
  }

  [...table.tHead.rows[0].cells].forEach((title, column) => {
    if (title.textContent === "values") return; // histograms have no order
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title.textContent;
    button.addEventListener("click", () => sort(column, title));
    title.replaceChildren(button);
  });
  for (const button of controls.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(!pressed(button)));
      filter();
    });
  }
  search.addEventListener("input", filter);
  controls.hidden = false;
  filter();
})();
