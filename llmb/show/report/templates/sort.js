// Sorts a table by a column, when its heading is clicked; without a script the table is as it was written.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    if (head.dataset.sort === undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const order = (a, b) => {
        const [one, other] = [key(a), key(b)];
        if (one === "" || other === "") return (one === "") - (other === "");
        const numbers = [Number(one), Number(other)];
        const sign = numbers.some(Number.isNaN) ? one.localeCompare(other) : numbers[0] - numbers[1];
        return up ? sign : -sign;
      };
      const rows = [...body.rows].sort(order);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...rows);
    });
  });
}
