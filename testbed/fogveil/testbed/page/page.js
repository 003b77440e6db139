"use strict";
// Tables sort by their heads, and copy as CSV or LaTeX in the order that is shown.

const latexCharacters = JSON.parse(document.getElementById("latex").textContent);

function numberIn(text) {
  const found = text.replaceAll(",", "").match(/^[^\d-]{0,2}(-?\d+(\.\d+)?(e[+-]?\d+)?)/i);
  return found ? Number(found[1]) : null;
}

function compareCells(one, other) {
  const numbers = [numberIn(one), numberIn(other)];
  if (numbers[0] !== null && numbers[1] !== null) return numbers[0] - numbers[1];
  if (numbers[0] !== null) return -1; // what has no value comes last
  if (numbers[1] !== null) return 1;
  return one.localeCompare(other, undefined, { numeric: true });
}

function sortBy(table, place) {
  const heads = [...table.tHead.rows[0].cells];
  const descending = heads[place].getAttribute("aria-sort") === "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[place].setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) =>
    compareCells(a.cells[place].textContent, b.cells[place].textContent));
  body.append(...(descending ? rows.reverse() : rows));
}

function cellsOf(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
}

function asCsv(table) {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return cellsOf(table).map((row) => row.map(quote).join(",")).join("\n") + "\n";
}

function asLatex(table) {
  const escape = (text) => [...text].map((c) => latexCharacters[c] ?? c).join("");
  const [head, ...rows] = cellsOf(table).map((row) => row.map(escape).join(" & ") + " \\\\");
  const columns = "l" + "r".repeat(table.tHead.rows[0].cells.length - 1);
  return ["% \\usepackage{booktabs}", `\\begin{tabular}{${columns}}`, "\\toprule", head, "\\midrule",
    ...rows, "\\bottomrule", "\\end{tabular}", ""].join("\n");
}

async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed in a file that was opened from a mail: the older way
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

for (const table of document.querySelectorAll(".prose table")) {
  const [figure, scroll] = [document.createElement("figure"), document.createElement("div")];
  scroll.className = "scroll";
  table.className = "sortable";
  table.replaceWith(figure);
  figure.append(scroll);
  scroll.append(table);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(table, place));
    head.replaceChildren(button);
  });
  const bar = document.createElement("div");
  bar.className = "copy";
  for (const [label, text] of [["copy as CSV", asCsv], ["copy as LaTeX", asLatex]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => copy(text(table), button));
    bar.append(button);
  }
  table.closest("figure").querySelector(".scroll").after(bar);
}
