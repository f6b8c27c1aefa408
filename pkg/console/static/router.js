// The state of the page is in the hash of its URL, so a link is a saved search.

import {useEffect, useState} from "./vendor-htm-preact.js";

const listeners = new Set();

function parse() {
  const text = location.hash.replace(/^#\/?/, "");
  const at = text.indexOf("?");
  const view = at < 0 ? text : text.slice(0, at);
  return {view: view || "search", params: Object.fromEntries(new URLSearchParams(at < 0 ? "" : text.slice(at + 1)))};
}

let current = parse();
// lastSearch contains the parameters of the last search, to which Esc leads back.
let lastSearch = {};

function show(next) {
  current = next;
  if (current.view === "search") lastSearch = current.params;
  for (const listener of [...listeners]) listener(current);
}

for (const event of ["hashchange", "popstate"]) addEventListener(event, () => {
  clearTimeout(pending);
  pending = 0;
  if (link(current.view, current.params) !== location.hash) show(parse());
});

// Browsers limit how often the URL changes, so it follows the typing with a delay.
const writeAfter = 150;
let pending = 0;

function write(method) {
  clearTimeout(pending);
  pending = 0;
  history[method](null, "", link(current.view, current.params));
}

// link returns the address of a view. Empty parameters are left out.
export function link(view, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== null && value !== "") query.set(name, value);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

// go shows a view. With replace, the browser's history gets no new entry.
export function go(view, params, {replace = false} = {}) {
  const filled = Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  if (link(view, filled) === link(current.view, current.params)) return;
  if (!replace && pending) write("replaceState");
  show({view, params: filled});
  if (!replace) return write("pushState");
  clearTimeout(pending);
  pending = setTimeout(() => write("replaceState"), writeAfter);
}

// keep makes the current state an entry in the history, which later changes do not replace.
export function keep() {
  write("replaceState");
  history.pushState(null, "", location.hash);
}

export const route = () => current;

export const back = () => go("search", lastSearch);

export function useRoute() {
  const [state, set] = useState(current);
  useEffect(() => {
    listeners.add(set);
    set(current);
    return () => listeners.delete(set);
  }, []);
  return state;
}

// resourceLink returns the address of the view of a resource. It identifies the resource by its name, so that the link
// also finds a resource that was created again.
export function resourceLink(cluster, properties, more = {}) {
  const {apigroup, kind, namespace, name} = properties;
  return link("resource", {cluster, group: text(apigroup), kind: text(kind), namespace: text(namespace), name: text(name), ...more});
}

const text = (value) => (typeof value === "string" ? value : value === undefined ? "" : String(value));
