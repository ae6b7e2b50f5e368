"use strict";
// Sorts and filters tables, and ties rows of operators to the marks of the roofline: what hangs over
// a mark, with the pointer or by keyboard, is the text of its rows.
const make = (tag, text = "", kind = "") => {
  const element = document.createElement(tag);
  element.append(text);
  element.className = kind;
  return element;
};
const shown = 3; // operators on one card; more are counted
const card = make("div", "", "hover");
card.setAttribute("role", "status");
card.hidden = true;
document.body.append(card);
const place = (mark) => {
  const [at, box] = [mark.getBoundingClientRect(), card.getBoundingClientRect()];
  const width = document.documentElement.clientWidth;
  const beside = at.right + 12 + box.width < width ? at.right + 12 : at.left - 12 - box.width;
  card.style.left = `${Math.max(4, Math.min(beside, width - box.width - 4))}px`;
  const room = window.innerHeight - box.height - 4;
  card.style.top = `${Math.max(4, Math.min((at.top + at.bottom - box.height) / 2, room))}px`;
};
let under = null; // the mark that the card is of
const hide = () => { card.hidden = true; under = null; };
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
document.addEventListener("scroll", () => { if (under) place(under); }, { passive: true });

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const names = heads.map((head) => head.textContent.trim());
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const rank = new Map(rows.map((row, at) => [row, at + 1]));
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
      const sorted = [...rows].sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        return x === y ? rank.get(a) - rank.get(b) : sign * (x < y ? -1 : 1);
      });
      body.append(...sorted);
    });
  });

  const owned = new Map(); // a mark and the rows of its operators, longest first
  for (const row of rows) {
    for (const id of (row.dataset.marks ?? "").split(" ").filter(Boolean)) {
      const mark = document.getElementById(id);
      if (mark) owned.set(mark, [...(owned.get(mark) ?? []), row]);
    }
  }
  const light = (marks, on) => marks.forEach((mark) => {
    [mark, ...owned.get(mark)].forEach((each) => each.classList.toggle("lit", on));
  });
  for (const row of rows) {
    const marks = [...owned.keys()].filter((mark) => owned.get(mark).includes(row));
    row.addEventListener("mouseenter", () => light(marks, true));
    row.addEventListener("mouseleave", () => light(marks, false));
  }

  const show = (mark) => {
    card.replaceChildren();
    const all = owned.get(mark);
    for (const row of all.slice(0, shown)) {
      const list = make("dl");
      list.dataset.rank = rank.get(row);
      [...row.cells].forEach((cell, column) => {
        const text = cell.textContent.trim();
        if (text) list.append(make("dt", names[column]), make("dd", text));
      });
      card.append(list);
    }
    if (all.length > shown) card.append(make("p", `and ${all.length - shown} more in this place`));
    card.hidden = false;
    under = mark;
    place(mark);
  };
  // Of each picture one mark is a tab stop; arrows walk from there, longest first.
  for (const picture of new Set([...owned.keys()].map((mark) => mark.ownerSVGElement))) {
    const marks = [...owned.keys()].filter((mark) => mark.ownerSVGElement === picture);
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    marks.forEach((mark, at) => {
      const first = owned.get(mark)[0];
      mark.setAttribute("tabindex", at ? "-1" : "0");
      mark.setAttribute("role", "button");
      mark.setAttribute("aria-label", [...first.cells].slice(0, 7).map((c) => c.textContent).join(" "));
      const begin = () => { light([mark], true); show(mark); };
      const end = () => { light([mark], false); hide(); };
      const go = () => first.scrollIntoView({ block: "center" });
      mark.addEventListener("mouseenter", begin);
      mark.addEventListener("mouseleave", end);
      mark.addEventListener("focus", begin);
      mark.addEventListener("blur", end);
      mark.addEventListener("click", go);
      mark.addEventListener("keydown", (event) => {
        if (event.key === "Enter") go();
        if (!(event.key in steps)) return;
        event.preventDefault();
        const next = marks[(at + steps[event.key] + marks.length) % marks.length];
        mark.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus({ preventScroll: true });
      });
    });
  }

  if (!table.dataset.filter) continue;
  const line = make("p", "", "filter");
  const label = make("label", "Filter ");
  const field = make("input");
  field.type = "search";
  const words = heads.map((_, at) => at).filter((at) => !heads[at].classList.contains("number"));
  field.placeholder = words.map((at) => names[at]).join(", ");
  label.append(field);
  const count = make("output");
  line.append(label, count);
  table.parentElement.before(line);
  const filter = () => {
    const wanted = field.value.trim().toLowerCase();
    let left = 0;
    for (const row of rows) {
      const text = words.map((column) => row.cells[column].textContent).join(" ").toLowerCase();
      row.hidden = !text.includes(wanted);
      left += !row.hidden;
    }
    for (const [mark, its] of owned) {
      mark.classList.toggle("out", its.every((row) => row.hidden));
    }
    count.textContent = `${left} of ${rows.length} ${table.dataset.filter}`;
  };
  field.addEventListener("input", filter);
  filter();
}
