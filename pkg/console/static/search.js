// The view of searches: the box, the kinds that a query finds, and their resources.

import {aborted, delay} from "./api.js";
import {columnsOf} from "./columns.js";
import {find, overviewItems, overviewKinds, pageSize, preview} from "./find.js";
import {follow} from "./live.js";
import {SearchBox, forget, positionOf} from "./searchbox.js";
import {go, keep, link, route} from "./router.js";
import {number, plural} from "./text.js";
import {Pager, Table, arrows, focusFirst} from "./table.js";
import {Problem, Text, html, label, useEffect, useEpoch, useLayoutEffect, useMemo, useRef, useState, useTick} from "./view.js";

// previewAfter is the pause in ms after which the first resources of each kind are read.
const previewAfter = 120;
const shownWarnings = 2;
const examples = ["kind:Pod status!=Running", "kind:Deployment available<1", "kind:Cluster ManagedClusterConditionAvailable!=True", "created:hour", "kind:AccessReport status:Incomplete"];

const stateOf = (params) => ({query: params.q ?? "", kind: params.kind ?? "", sort: params.sort ?? "", page: Math.max(1, Math.floor(Number(params.page)) || 1), live: params.live !== "off"});

const replace = (change) => go("search", {...route().params, ...change}, {replace: true});

// useResult returns the result of a search. While the next one is on its way, the previous one stays.
function useResult(state, params) {
  const {query, kind, sort, page} = state;
  const epoch = useEpoch();
  const [held, setHeld] = useState({});
  const latest = useRef(null);
  // wanted is the key of the last search. The result of an older one, such as a live update, must not replace it.
  const wanted = useRef("");
  const key = JSON.stringify([query, kind, sort, page]);

  const load = async (signal) => {
    const outdated = () => signal.aborted || wanted.current !== key;
    try {
      const result = await find({query, kind, sort, page}, signal);
      if (outdated()) return;
      const several = !result.kind && query !== "" && result.kinds.length > 0;
      // The first items are shown at once, the first of each kind after another request.
      const first = several && latest.current?.key !== key;
      if (!several || first) show({key, result, state, params, previews: several ? grouped(result.items) : undefined});
      if (several) {
        // The next keystroke comes first.
        if (first) await delay(previewAfter, signal);
        const previews = await preview(query, result.kinds, signal).catch((error) => {
          // Together, the searches can cost more than the server allows in one request.
          if (error.code !== 400 && error.code !== 422) throw error;
          return grouped(result.items);
        });
        if (!outdated()) show({key, result, state, params, previews});
      }
    } catch (error) {
      if (aborted(error) || outdated()) return;
      // What the user may not find any more disappears. Other errors keep the previous result.
      const keep = error.unreachable || error.code === 429 || error.code === 422;
      if (!keep) latest.current = null;
      setHeld({shown: latest.current, error});
      if (error.code === 429) setTimeout(() => !outdated() && load(signal), Math.max(1, error.retryAfter) * 1000);
    }
  };
  const show = (shown) => {
    latest.current = shown;
    setHeld({shown});
  };
  // A search begins at once, and ends the previous one.
  useLayoutEffect(() => {
    const controller = new AbortController();
    wanted.current = key;
    load(controller.signal);
    return () => controller.abort();
  }, [query, kind, sort, page, epoch]);

  // apply changes shown items until the next search.
  const apply = (changes) => {
    const {current} = latest;
    if (!current) return;
    const changed = (items) => items.flatMap((item) => {
      if (!changes.has(item.uid)) return [item];
      const object = changes.get(item.uid);
      return object ? [{...item, properties: object.properties ?? item.properties}] : [];
    });
    const previews = current.previews && new Map([...current.previews].map(([name, p]) => [name, {...p, items: changed(p.items)}]));
    show({...current, result: {...current.result, items: changed(current.result.items)}, previews});
  };
  const shows = (uid) => Boolean(latest.current?.result.items.some((i) => i.uid === uid) || [...(latest.current?.previews?.values() ?? [])].some((p) => p.items.some((i) => i.uid === uid)));
  return {...held, load, apply, shows, epoch};
}

function grouped(items) {
  const out = new Map();
  for (const item of items) {
    const kind = String(item.properties.kind ?? "");
    if (!out.has(kind)) out.set(kind, {items: []});
    if (out.get(kind).items.length < overviewItems) out.get(kind).items.push(item);
  }
  return out;
}

function useLive({query, kind, live}, {load, apply, shows, epoch}, ready) {
  const [state, setState] = useState("");
  const now = useRef(null);
  now.current = {load, apply, shows};
  useEffect(() => {
    setState("");
    if (!live || !ready || (!query && !kind)) return undefined;
    return follow({
      query, kind, onState: setState,
      shows: (uid) => now.current.shows(uid), onChanges: (changes) => now.current.apply(changes), refresh: (signal) => now.current.load(signal),
    });
  }, [query, kind, live, ready, epoch]);
  // What was shown before the page was hidden may be forbidden now.
  useEffect(() => {
    const controller = new AbortController();
    const seen = () => document.visibilityState === "visible" && (forget(), now.current.load(controller.signal));
    document.addEventListener("visibilitychange", seen);
    return () => { controller.abort(); document.removeEventListener("visibilitychange", seen); };
  }, []);
  return state;
}

// Kinds lists the kinds that a query finds. The counts are links.
function Kinds({kinds, total, kind, params}) {
  const entry = (name, label, count) => html`<li key=${name}><a href=${link("search", {...params, kind: name, page: "", sort: ""})} aria-current=${name === kind ? "true" : undefined}>
    ${name ? html`<${Text} text=${label} max=${60} />` : label}<span class="count">${number(count)}</span></a></li>`;
  return html`<nav class="kinds" aria-label="Kinds"><ul>
    ${entry("", "All kinds", total)}
    ${kinds.map((k) => entry(k.kind, k.kind, k.count))}
  </ul></nav>`;
}

// kindsOf says how many kinds a query finds.
const kindsOf = ({kinds, moreKinds}) => `${moreKinds ? "more than " : ""}${plural(kinds.length, "kind")}`;

// Start is shown for an empty query.
function Start({result, params}) {
  const {kinds} = result;
  return html`<div class="start">
    <section aria-labelledby="examples"><h2 id="examples">Examples</h2>
      <ul class="examples">${examples.map((q) => html`<li key=${q}><a class="row" href=${link("search", {...params, q})}><code>${q}</code></a></li>`)}</ul>
    </section>
    ${kinds.length > 0 && html`<section aria-labelledby="all-kinds"><h2 id="all-kinds">${kindsOf(result)}</h2>
      <ul class="tiles">${kinds.map((k) => html`<li key=${k.kind}><a class="row" href=${link("search", {...params, q: "", kind: k.kind})}><${Text} text=${k.kind} max=${60} /><span class="count">${number(k.count)}</span></a></li>`)}</ul>
    </section>`}
  </div>`;
}

// Overview shows the first resources of each kind.
function Overview({result, previews, params}) {
  const shown = result.kinds.slice(0, overviewKinds);
  const more = result.kinds.length - shown.length;
  return html`<div>
    ${shown.map(({kind, count}) => {
      const items = previews?.get(kind)?.items ?? [];
      const space = Math.min(count, overviewItems);
      return html`<section class="group" key=${kind} aria-label=${label(kind)}>
        <h2><${Text} text=${kind} max=${60} /> <span class="count">${number(count)}</span></h2>
        <${Table} caption=${`${kind}: first resources`} columns=${columnsOf(kind, items)} rows=${items} keyOf=${(i) => i.uid} space=${space} />
        ${count > space && html`<p><a class="row" href=${link("search", {...params, kind, page: ""})}>Show all ${number(count)} <span class="hidden">of ${label(kind)}</span></a></p>`}
      </section>`;
    })}
    ${more > 0 && html`<p class="note">${plural(more, "more kind")} ${more === 1 ? "is" : "are"} listed under “Kinds”.</p>`}
  </div>`;
}

const pagesOf = ({count}) => Math.max(1, Math.ceil(count / pageSize));

// One shows a page of the resources of one kind.
function One({result, state, busy}) {
  const {kind, items, count} = result;
  const pages = pagesOf(result);
  const turn = (page) => go("search", {...route().params, page: page > 1 ? page : ""});
  return html`<section class="group" aria-label=${label(kind)}>
    <div class="bar"><h2><${Text} text=${kind} max=${60} /> <span class="count">${number(count)}</span></h2>
      <${Pager} page=${Math.min(state.page, pages)} pages=${pages} onPage=${turn} label="Pages" /></div>
    <${Table} caption=${`${kind}, page ${state.page} of ${pages}`} columns=${columnsOf(kind, items)} rows=${items} keyOf=${(i) => i.uid} busy=${busy}
      order=${state.sort || "name"} onSort=${(sort) => replace({sort, page: ""})} space=${pages > 1 ? pageSize : 0} />
  </section>`;
}

function Results({result, previews, state, params, busy}) {
  const empty = state.query === "" && state.kind === "";
  return [
    !empty && result.kinds.length > 0 && html`<${Kinds} key="kinds" kinds=${result.kinds} total=${result.total} kind=${state.kind} params=${params} />`,
    html`<div key="found" class="found">
      ${empty ? html`<${Start} result=${result} params=${params} />`
        : result.count === 0 ? html`<p class="note">No resources found. You only find resources that you may list on the hub or view on the clusters.</p>`
        : result.kind ? html`<${One} result=${result} state=${state} busy=${busy} />`
        : html`<${Overview} result=${result} previews=${previews} params=${params} />`}
    </div>`,
  ];
}

// Warnings lists what the result may lack.
function Warnings({warnings}) {
  const list = (some) => html`<ul>${some.map((w) => html`<li key=${w}><${Text} text=${w} max=${400} /></li>`)}</ul>`;
  const more = warnings.slice(shownWarnings);
  return html`<div class="warnings">${list(warnings.slice(0, shownWarnings))}
    ${more.length > 0 && html`<details><summary>${plural(more.length, "more warning")}</summary>${list(more)}</details>`}</div>`;
}

// searched returns the query to search. A space at the end has no meaning, except after a backslash.
const searched = (text) => text.replace(/(?<=[^\\\s])\s+$/u, "");

// Announce tells screen readers the count when typing pauses.
function Announce({text}) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSaid(text), 700);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<p class="hidden" role="status" aria-live="polite">${said}</p>`;
}

export function Search({params}) {
  const typed = stateOf(params);
  const state = {...typed, query: searched(typed.query)};
  const found = useResult(state, {...params, q: state.query});
  const {shown, error} = found;
  const live = useLive(state, found, Boolean(shown));
  const [exporting, setExporting] = useState(null);
  const body = useRef(null);
  const focusing = useRef(false);
  const tick = useTick(15);

  const key = JSON.stringify([state.query, state.kind, state.sort, state.page]);
  const current = shown?.key === key;
  useEffect(() => {
    if (!focusing.current || !current) return;
    focusing.current = false;
    focusFirst(body.current);
  });
  const type = (q) => replace({q, kind: "", page: "", sort: ""});
  const commit = () => {
    if (current) focusFirst(body.current);
    else focusing.current = true;
    keep();
  };
  const keys = (event) => {
    const first = body.current.querySelector(".row") === event.target;
    if (event.key === "Escape" || (event.key === "ArrowUp" && first)) document.getElementById("search").focus();
    else arrows(event);
  };
  const openExport = async () => {
    const {Export} = await import("./export.js");
    setExporting(() => Export);
  };

  const result = shown?.result;
  // The page of a link, or of resources that were deleted, may not exist.
  useEffect(() => {
    if (current && result.kind && state.page > pagesOf(result)) replace({page: pagesOf(result) > 1 ? pagesOf(result) : ""});
  }, [current, result]);
  // The results do not change with each keystroke.
  const results = useMemo(() => result && html`<${Results} ...${shown} busy=${!current} />`, [shown, current, tick]);
  const empty = state.query === "" && state.kind === "";
  const mistaken = error && positionOf(error, state.query);
  const counted = result && (result.kind ? plural(result.count, "resource") : `${plural(result.count, "resource")} of ${kindsOf(result)}`);
  const said = !current ? "" : result.count === 0 ? "No resources found" : counted;
  return html`<div class="search">
    <h1 class="hidden" tabindex="-1">Search</h1>
    <${SearchBox} query=${typed.query} error=${error} onType=${type} onCommit=${commit} />
    <div class="toolbar">
      <p class="summary">${error && !mistaken && !shown ? "" : !result ? "Searching …" : mistaken ? "Results of the previous query" : said || "Searching …"}</p>
      ${!empty && html`<div class="actions">
        <span class="note">${state.live && live === "polling" ? "refreshed every 10 s" : ""}</span>
        <button type="button" class="toggle" aria-pressed=${state.live} onClick=${() => replace({live: state.live ? "off" : ""})}><span aria-hidden="true">${state.live ? "●" : "○"}</span> Live</button>
        <button type="button" onClick=${openExport}>Export …</button>
      </div>`}
    </div>
    <${Announce} text=${mistaken ? `Error at position ${mistaken.position + 1}: ${mistaken.message}` : said} />
    ${!mistaken && html`<${Problem} error=${error} what="the resources of the fleet" />`}
    ${result?.warnings.length > 0 && html`<${Warnings} warnings=${result.warnings} />`}
    ${result && html`<div class=${`results ${current && !mistaken ? "" : "stale"}`} ref=${body} onKeyDown=${keys}>${results}</div>`}
    ${exporting && result && html`<${exporting} state=${typed} result=${result} onClose=${() => setExporting(null)} />`}
  </div>`;
}
