"use strict";
// Sorts the operator table and ties its rows to the marks of the roofline.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent;
    return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const first = head.classList.contains("number") && column > 0 ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        return x === y ? a.dataset.rank - b.dataset.rank : sign * (x < y ? -1 : 1);
      });
      body.append(...rows);
    });
  });
  for (const row of body.rows) {
    const marks = document.querySelectorAll(`svg [id$="-device-1-operator-${row.dataset.rank}"]`);
    const light = (on) => [row, ...marks].forEach((each) => each.classList.toggle("lit", on));
    for (const each of [row, ...marks]) {
      each.addEventListener("mouseenter", () => light(true));
      each.addEventListener("mouseleave", () => light(false));
    }
    for (const mark of marks) {
      mark.style.cursor = "pointer";
      mark.addEventListener("click", () => row.scrollIntoView({ block: "center" }));
    }
  }
}
