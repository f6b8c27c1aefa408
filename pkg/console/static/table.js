// A table whose rows are reached with the arrow keys. Each row has one link or button, which Enter activates.

import {html, label as labelOf} from "./view.js";

const target = "a.row, button.row";

// moveFocus moves the focus between the rows of a container. It returns false if there is no row in that direction.
function moveFocus(container, key) {
  const rows = [...container.querySelectorAll(target)];
  const now = rows.indexOf(document.activeElement);
  const next = {ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: rows.length - 1, PageDown: Math.min(now + 10, rows.length - 1), PageUp: Math.max(now - 10, 0)}[key];
  if (next === undefined || next < 0 || next >= rows.length) return false;
  rows[next].focus();
  return true;
}

// arrows handles keys in a container with rows.
export function arrows(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || !event.target.matches?.(target)) return;
  if (moveFocus(event.currentTarget, event.key)) event.preventDefault();
}

// focusFirst moves the focus to the first row of a container.
export const focusFirst = (container) => container?.querySelector(target)?.focus();

// Table shows rows. A column has a name, a title, render, and sort if the server can order by it. order is the name of
// the column, followed by " desc" for the reverse order. space is the number of rows for which the table reserves space.
export function Table({caption, columns, rows, keyOf, order, onSort, busy, space = 0}) {
  const title = labelOf(caption);
  const [by, direction] = (order ?? "").split(" ");
  const sorted = (column) => (column.sort && by === column.name ? (direction === "desc" ? "descending" : "ascending") : undefined);
  const sort = (column) => onSort(by === column.name && direction !== "desc" ? `${column.name} desc` : column.name);
  return html`<div class="scroll" role="region" aria-label=${title} tabindex="0" aria-busy=${Boolean(busy)}>
    <table>
      <caption class="hidden">${title}</caption>
      <thead><tr>${columns.map((column) => html`<th key=${column.name} scope="col" class=${column.numeric ? "numeric" : ""} aria-sort=${sorted(column)}>
        ${column.sort && onSort ? html`<button type="button" onClick=${() => sort(column)}>${column.title}<span aria-hidden="true" class="direction">${{ascending: "▲", descending: "▼"}[sorted(column)] ?? "↕"}</span></button>` : column.title}
      </th>`)}</tr></thead>
      <tbody>
        ${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map((column, i) => (i === 0 || column.heading
          ? html`<th key=${column.name} scope="row">${column.render(row)}</th>`
          : html`<td key=${column.name} class=${column.numeric ? "numeric" : ""}>${column.render(row)}</td>`))}</tr>`)}
        ${Array.from({length: Math.max(0, space - rows.length)}, (_, i) => html`<tr key=${`space-${i}`} class="space" aria-hidden="true"><td colspan=${columns.length}></td></tr>`)}
      </tbody>
    </table>
  </div>`;
}

// Pager moves between pages. It stays in its place.
export function Pager({page, pages, onPage, label}) {
  if (pages <= 1) return null;
  const to = (n) => () => onPage(n);
  return html`<nav class="pager" aria-label=${label}>
    <button type="button" disabled=${page <= 1} onClick=${to(1)} aria-label="First page">«</button>
    <button type="button" disabled=${page <= 1} onClick=${to(page - 1)}>Previous</button>
    <span>Page ${page.toLocaleString("en-US")} of ${pages.toLocaleString("en-US")}</span>
    <button type="button" disabled=${page >= pages} onClick=${to(page + 1)}>Next</button>
    <button type="button" disabled=${page >= pages} onClick=${to(pages)} aria-label="Last page">»</button>
  </nav>`;
}
