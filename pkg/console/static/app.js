// The shell of the page: navigation, keys, theme, and the state of the connection.

import {connection, groups, request} from "./api.js";
import {back, go, link, route, useRoute} from "./router.js";
import {Search} from "./search.js";
import {render} from "./vendor-htm-preact.js";
import {Dialog, Loading, Text, html, useEffect, useErrorBoundary, useRef, useRequest, useState} from "./view.js";

const views = {
  __proto__: null,
  search: {title: "Search", module: () => Promise.resolve({Search}), name: "Search"},
  fleet: {title: "Fleet", module: () => import("./fleet.js"), name: "Fleet"},
  access: {title: "Access", module: () => import("./access.js"), name: "Access"},
  resource: {title: "Resource", module: () => import("./resource.js"), name: "Resource"},
};
const navigation = ["search", "fleet", "access"];

const loaded = {search: Search};

// useView returns the component of a view. Views other than the search are loaded when they are shown.
function useView(name) {
  const [, set] = useState(0);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    if (loaded[name]) return;
    setFailed(false);
    views[name].module().then((module) => { loaded[name] = module[views[name].name]; set((n) => n + 1); }, () => setFailed(true));
  }, [name]);
  return {view: loaded[name], failed};
}

// Boundary shows a message instead of a view that fails, until the user tries again or goes to another place.
function Boundary({place, children}) {
  const [error, reset] = useErrorBoundary(console.error);
  useEffect(() => error && reset(), [place]);
  if (!error) return children;
  return html`<div class="problem" role="alert"><h1 tabindex="-1">The page cannot show this</h1><p><${Text} text=${error.message} max=${400} /></p>
    <p><button type="button" onClick=${reset}>Try again</button> <a href=${link("search")}>Start a new search</a></p></div>`;
}

const themes = ["auto", "light", "dark"];

function useTheme() {
  const [theme, setTheme] = useState(() => {
    try { return themes.includes(localStorage.fleetConsoleTheme) ? localStorage.fleetConsoleTheme : "auto"; } catch { return "auto"; }
  });
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try { localStorage.fleetConsoleTheme = theme; } catch { /* The browser stores nothing for this page. */ }
  }, [theme]);
  return [theme, () => setTheme(themes[(themes.indexOf(theme) + 1) % themes.length])];
}

function Connection() {
  const [error, setError] = useState(connection.error);
  const [returned, setReturned] = useState(false);
  useEffect(() => connection.subscribe(() => {
    setReturned(!connection.error);
    setError(connection.error);
  }), []);
  useEffect(() => {
    if (!returned) return undefined;
    const timer = setTimeout(() => setReturned(false), 4000);
    return () => clearTimeout(timer);
  }, [returned]);
  return html`<div role="status" class="connection">
    ${error && html`<p class="banner"><strong>No connection.</strong> <${Text} text=${error.message} max=${400} /> The page tries again by itself. What it shows may be outdated.</p>`}
    ${!error && returned && html`<p class="banner good">The hub responds again.</p>`}
  </div>`;
}

function User() {
  const {data} = useRequest((signal) => request("POST", `${groups.authentication}/selfsubjectreviews`, {
    signal, body: {apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview"},
  }).then((review) => review.status?.userInfo?.username, (error) => { if (error.unreachable || error.name === "AbortError") throw error; }), []);
  return data ? html`<span class="user"><span class="hidden">User </span><${Text} text=${data} max=${60} /></span>` : null;
}

const keys = [["/", "go to the search"], ["↓ ↑", "move through completions and results"], ["Enter", "open, or go to the results"], ["Esc", "close, or go back to the search"], ["g s, g f, g a", "show Search, Fleet, Access"], ["?", "show these keys"]];

function Keys({onClose}) {
  return html`<${Dialog} title="Keys" onClose=${onClose}><dl class="pairs">${keys.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl></${Dialog}>`;
}

const editable = (element) => element?.closest?.("input, textarea, select, [contenteditable]");

// useKeys handles the keys of the whole page.
function useKeys(showKeys) {
  const prefix = useRef(0);
  useEffect(() => {
    const down = (event) => {
      if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.isComposing || document.querySelector("dialog[open]")) return;
      if (event.key === "Escape") {
        if (route().view === "search") document.getElementById("search")?.focus();
        else if (!editable(event.target)) back();
        return;
      }
      if (editable(event.target)) return;
      if (event.key === "/") {
        event.preventDefault();
        if (route().view !== "search") go("search", {});
        requestAnimationFrame(() => { const box = document.getElementById("search"); box?.focus(); box?.select(); });
      } else if (event.key === "?") {
        showKeys();
      } else if (event.key === "g") {
        prefix.current = Date.now();
      } else if (Date.now() - prefix.current < 1500) {
        prefix.current = 0;
        const to = navigation.find((name) => name[0] === event.key);
        if (to) go(to, {});
      }
    };
    document.addEventListener("keydown", down);
    return () => document.removeEventListener("keydown", down);
  }, []);
}

function App() {
  const {view: path, params} = useRoute();
  const name = views[path.split("/")[0]] ? path.split("/")[0] : "search";
  const {view, failed} = useView(name);
  const [theme, nextTheme] = useTheme();
  const [help, setHelp] = useState(false);
  const main = useRef(null);
  const first = useRef(true);
  useKeys(() => setHelp(true));
  const place = name === "resource" ? JSON.stringify([params.cluster, params.kind, params.namespace, params.name]) : path.split("/").slice(0, 2).join("/");
  useEffect(() => {
    document.title = `${views[name].title} – Fleet console`;
    // A new view begins at its heading. The search begins in its box.
    if (name === "search") document.getElementById("search")?.focus();
    else if (!first.current) main.current.querySelector("h1")?.focus();
    if (!first.current) scrollTo(0, 0);
    first.current = false;
  }, [place, Boolean(view)]);
  return html`<div class="app">
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top">
      <span class="brand">Fleet console</span>
      <nav aria-label="Views"><ul>${navigation.map((n) => html`<li key=${n}><a href=${link(n)} aria-current=${n === name ? "page" : undefined}>${views[n].title}</a></li>`)}</ul></nav>
      <span class="spring"></span>
      <${User} />
      <button type="button" onClick=${nextTheme} aria-label=${`Theme: ${theme}`} title=${`Theme: ${theme}`}>${{auto: "◐", light: "☀", dark: "☾"}[theme]}</button>
      <button type="button" onClick=${() => setHelp(true)} aria-label="Keys" title="Keys">?</button>
    </header>
    <${Connection} />
    <main ref=${main} id="main" tabindex="-1">
      ${failed ? html`<p class="problem" role="alert">This view could not be loaded. Load the page again.</p>` : view ? html`<${Boundary} key=${name} place=${link(path, params)}><${view} view=${path} params=${params} /></${Boundary}>` : html`<${Loading} what="the view" />`}
    </main>
    ${help && html`<${Keys} onClose=${() => setHelp(false)} />`}
  </div>`;
}

render(html`<${App} />`, document.getElementById("app"));
