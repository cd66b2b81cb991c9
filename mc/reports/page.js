"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent;
    };
    const rows = Array.from(body.rows).map((row) => [key(row), row]);
    const empty = (x) => x === "";
    rows.sort(([a], [b]) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b);
      const order = typeof a === "number" && typeof b === "number" ? a - b
        : String(a).localeCompare(String(b), "en", { numeric: true });
      return up ? order : -order;
    });
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows.map(([, row]) => row));
  });
}
