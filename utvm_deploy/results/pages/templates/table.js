// Sorts a table by the column whose head is clicked; numbers by their value, the rest by its text.
for (const head of document.querySelectorAll("table.sorts th")) {
  const text = head.textContent.trim();
  if (!text) continue;
  const button = document.createElement("button");
  button.textContent = text;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const isUp = head.getAttribute("aria-sort") === "descending";
    const column = head.cellIndex;
    const body = head.closest("table").tBodies[0];
    const value = (row) => {
      const cell = row.cells[column];
      const number = parseFloat((cell.dataset.value ?? cell.textContent).replaceAll(",", ""));
      return Number.isNaN(number) ? cell.textContent.trim() : number;
    };
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      if (typeof x === typeof y) return x < y ? -1 : x > y ? 1 : 0;
      return typeof x === "number" ? 1 : -1;
    });
    body.replaceChildren(...(isUp ? rows : rows.reverse()));
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
  });
}
