// The view of one resource: what its cluster reports about it, what is related to it, and what delivered it.

import {groups, path} from "./api.js";
import {Delivery} from "./delivery.js";
import {related} from "./find.js";
import {RelatedGraph} from "./graph.js";
import {go, link, resourceLink, route} from "./router.js";
import {number, operands, plain, shell} from "./text.js";
import {arrows} from "./table.js";
import {watch} from "./watch.js";
import {Age, Command, Loading, Problem, Text, Value, html, useEffect, useRequest} from "./view.js";

const maxRelated = 100;
const shownRelated = 20;
const maxTitle = 300;
const reloadEvery = 1000;
const pollEvery = 15_000;

const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const identifying = new Set(["name", "namespace", "kind", "kind_plural", "apigroup", "apiversion", "cluster", "label", "annotation", "condition"]);

// nameOf returns the name of the FleetResource.
const nameOf = ({uid, cluster}) => (uid.startsWith("cluster__") ? uid : uid.slice(cluster.length + 1));

// useChanges calls reload when the resource changes.
function useChanges(item, reload) {
  useEffect(() => {
    if (!item) return undefined;
    const controller = new AbortController();
    const {signal} = controller;
    let dirty = false;
    const timer = setInterval(() => {
      if (!dirty || document.hidden) return;
      dirty = false;
      reload();
    }, reloadEvery);
    let poll;
    let started = false;
    watch(path(groups.search, "namespaces", item.cluster, "fleetresources"), {fieldSelector: `metadata.name=${nameOf(item).replace(/[\\,=]/g, "\\$&")}`}, {
      signal, onEvent: () => { dirty = true; },
      onStart: () => { dirty = started; started = true; },
    }).then(() => { if (!signal.aborted) poll = setInterval(() => { dirty = true; }, pollEvery); });
    return () => { controller.abort(); clearInterval(timer); clearInterval(poll); };
  }, [item?.uid, reload]);
}

function Pairs({pairs}) {
  return html`<dl class="pairs">${pairs.map(([name, value]) => html`<div key=${name}><dt><${Text} text=${name} max=${200} /></dt><dd>${Array.isArray(value)
    ? html`<ul>${value.map((v, i) => html`<li key=${i}><${Value} value=${v} /></li>`)}</ul>`
    : isMap(value) ? html`<${Pairs} pairs=${Object.entries(value)} />` : html`<${Value} value=${value} />`}</dd></div>`)}</dl>`;
}

function Section({id, title, children}) {
  return html`<section class="part" aria-labelledby=${id}><h2 id=${id}>${title}</h2>${children}</section>`;
}

function kubectl(item) {
  const p = item.properties;
  const plural = plain(p.kind_plural || String(p.kind ?? "").toLowerCase());
  const hub = p._hubClusterResource === true || item.uid.startsWith("cluster__");
  const words = ["kubectl", ...(hub ? [] : ["--context", shell(item.cluster)]), "get", ...(p.namespace ? ["-n", shell(plain(p.namespace))] : []), "-o", "yaml",
    operands([p.apigroup ? `${plural}.${plain(p.apigroup)}` : plural, plain(p.name)])];
  return {hub, text: words.join(" ")};
}

function Related({kinds}) {
  if (kinds.length === 0) return html`<p class="note">The cluster reports no related resources that you may find.</p>`;
  return html`<div onKeyDown=${arrows}>${kinds.map(({kind, count, items = []}) => html`<div key=${kind} class="relatedkind"><h3><${Text} text=${kind} max=${60} /> <span class="count">${number(count)}</span></h3>
    <ul class="related">${items.slice(0, shownRelated).map((i) => html`<li key=${i.uid}><a class="row" href=${resourceLink(i.cluster, i.properties)}><${Text} text=${i.properties.name} max=${80} /></a>
      ${i.properties.status !== undefined && html` <span class="note"><${Text} text=${i.properties.status} max=${40} /></span>`}</li>`)}
      ${count > shownRelated && html`<li class="note">and ${number(count - Math.min(shownRelated, items.length))} more</li>`}</ul></div>`)}</div>`;
}

export function Resource({params}) {
  const which = {cluster: params.cluster ?? "", group: params.group ?? "", kind: params.kind ?? "", namespace: params.namespace ?? "", name: params.name ?? ""};
  const key = JSON.stringify(which);
  const {data, error, loading, reload} = useRequest((signal) => related(which, maxRelated, signal), [key]);
  useChanges(data?.item, reload);
  const same = data?.item && String(data.item.properties.name) === which.name && data.item.cluster === which.cluster && String(data.item.properties.kind) === which.kind;
  const title = html`<h1 tabindex="-1"><span class="kindname"><${Text} text=${which.kind} max=${60} /></span> <${Text} text=${which.name} max=${maxTitle} /></h1>`;
  if (!same) {
    return html`<div class="resource">${title}${error ? html`<${Problem} error=${error} what="the resources of the fleet" />` : loading ? html`<${Loading} what="the resource" />`
      : html`<p class="note" role="status">There is no such resource, or you may not find it.</p>`}</div>`;
  }
  const {item, related: kinds} = data;
  const p = item.properties;
  const command = kubectl(item);
  const own = Object.entries(p).filter(([name, value]) => (name === "name" && plain(value).length > maxTitle) || !(identifying.has(name) && (typeof value === "string" || isMap(value))) && !name.startsWith("_"));
  const open = params.graph === "on";
  const toggle = () => go("resource", {...route().params, graph: open ? "" : "on"}, {replace: true});
  return html`<div class="resource">
    ${title}
    <dl class="facts">
      <div><dt>Cluster</dt><dd><a href=${link("search", {q: `cluster:${/^[\w.-]+$/.test(item.cluster) ? item.cluster : JSON.stringify(item.cluster)}`})}><${Text} text=${item.cluster} /></a>${command.hub && " (hub)"}</dd></div>
      ${p.namespace !== undefined && html`<div><dt>Namespace</dt><dd><${Text} text=${p.namespace} /></dd></div>`}
      <div><dt>API</dt><dd><${Text} text=${p.apigroup ? `${plain(p.apigroup)}/${plain(p.apiversion)}` : p.apiversion} /></dd></div>
      ${p.created !== undefined && html`<div><dt>Age</dt><dd><${Age} date=${p.created} /></dd></div>`}
    </dl>
    <${Section} id="related" title="Related resources">
      <p><button type="button" aria-expanded=${open} onClick=${toggle}>${open ? "Hide graph" : "Show graph"}</button></p>
      ${open && html`<${RelatedGraph} key=${key} which=${which} version=${JSON.stringify(kinds.map((k) => [k.kind, k.count]))} />`}
      <${Related} kinds=${kinds} />
    </${Section}>
    <${Section} id="properties" title="Properties">${own.length > 0 ? html`<${Pairs} pairs=${own} />` : html`<p class="note">Its cluster reports no properties of this kind.</p>`}</${Section}>
    ${[["condition", "Conditions"], ["label", "Labels"], ["annotation", "Annotations"]].map(([name, heading]) => isMap(p[name]) && html`<${Section} key=${name} id=${name} title=${heading}><${Pairs} pairs=${Object.entries(p[name])} /></${Section}>`)}
    ${!command.hub && html`<${Section} id="delivery" title="Delivered by"><${Delivery} item=${item} related=${kinds} /></${Section}>`}
    <${Section} id="commands" title="Read it with kubectl">
      ${!command.hub && html`<p class="note">With a context of the cluster:</p>`}
      <${Command} text=${command.text} label="kubectl command on the cluster" />
      <p class="note">On the hub, as its cluster reported it:</p>
      <${Command} text=${`kubectl get fr -n ${shell(item.cluster)} -o yaml ${operands([nameOf(item)])}`} label="kubectl command on the hub" />
    </${Section}>
  </div>`;
}
