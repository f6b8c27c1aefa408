// The graph of the resources that are related to one. It is walked with the arrow keys, or moved and zoomed with the mouse.

import {graphOf, height, width} from "./graphdata.js";
import {go, resourceLink} from "./router.js";
import {cut, number, plural, visible} from "./text.js";
import {Problem, Text, html, useEffect, useMemo, useRef, useRequest, useState} from "./view.js";

const short = (text, max) => { const [shown, more] = cut(visible(text), max); return more ? `${shown}…` : shown; };
const first = (node) => short(node.status ? `${node.kind} · ${node.status}` : node.kind, 34);
const second = (node) => short(node.name, 27);
// describe returns the name of a node for screen readers. It contains the text of the node.
const describe = (node) => `${first(node)} ${second(node)}${second(node) === visible(node.name) ? "" : `: ${short(node.name, 200)}`}`;
// minFit is the smallest scale that shows the whole graph.
const minFit = 0.6;
const pathOf = (points) => points.map((p, i) => `${i === 0 ? "M" : "L"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");

// Drawing contains what does not depend on the selection.
function drawing({graph, plan}) {
  return html`<g>
    ${plan.lines.map((line) => html`<path class="edge" d=${pathOf(line.points)} marker-end="url(#arrow)"><title>${line.label}</title></path>`)}
    ${plan.blocks.map((b) => html`<g><rect class="block" x=${b.x} y=${b.y} width=${b.width} height=${b.height} rx="6" />
      <text class="blocktitle" x=${b.x + 8} y=${b.y + 17}>${short(b.kind, 30)} (${number(b.count)})</text></g>`)}
    ${[...plan.places].map(([uid, {x, y}]) => {
      const node = graph.nodes.get(uid);
      return html`<g key=${uid} class=${`node ${uid === graph.root.uid ? "root" : ""}`} data-uid=${uid} role="button" tabindex="-1" aria-label=${describe(node)} transform=${`translate(${x} ${y})`}>
        <rect width=${width} height=${height} rx="5" />
        <text x="8" y="17" class="kind">${`${first(node)} `}</text>
        <text x="8" y="35">${second(node)}</text>
      </g>`;
    })}
  </g>`;
}

// exact draws the edges of one node.
function exact(graph, plan, uid) {
  return graph.edges.filter((e) => e.from === uid || e.to === uid).map((e) => {
    const [a, b] = [plan.places.get(e.from), plan.places.get(e.to)];
    return html`<path key=${`${e.from}${e.to}`} class="edge exact" d=${`M${a.x + width} ${a.y + height / 2}L${b.x} ${b.y + height / 2}`} marker-end="url(#arrow-exact)" />`;
  });
}

// next returns the node to which an arrow key leads.
function next(graph, plan, uid, key) {
  const here = plan.places.get(uid);
  const nearest = (uids, distance) => uids.reduce((best, u) => (best === undefined || distance(plan.places.get(u)) < distance(plan.places.get(best)) ? u : best), undefined);
  const near = (p) => Math.abs(p.y - here.y) * 3 + Math.abs(p.x - here.x);
  if (key === "ArrowRight" || key === "ArrowLeft") {
    const right = key === "ArrowRight";
    const inBlock = [...plan.places.keys()].filter((u) => u !== uid && plan.places.get(u).y === here.y && Math.abs(plan.places.get(u).x - here.x) < width * 1.2 && (plan.places.get(u).x > here.x) === right);
    if (inBlock.length > 0) return inBlock[0];
    return nearest(graph.edges.flatMap((e) => (right && e.from === uid ? [e.to] : !right && e.to === uid ? [e.from] : [])), near);
  }
  const down = key === "ArrowDown";
  const sameColumn = [...plan.places.keys()].filter((u) => {
    const p = plan.places.get(u);
    return u !== uid && Math.abs(p.x - here.x) < width && (down ? p.y > here.y : p.y < here.y);
  });
  return nearest(sameColumn, (p) => Math.abs(p.y - here.y) + Math.abs(p.x - here.x) / 4);
}

function Selected({graph, uid}) {
  const node = graph.nodes.get(uid);
  const ends = graph.edges.filter((e) => e.from === uid || e.to === uid);
  const shown = ends.slice(0, 12);
  return html`<div class="selected" role="status">
    <p><strong><${Text} text=${node.kind} max=${60} /></strong> <a href=${resourceLink(node.cluster, node.properties)}><${Text} text=${node.name} max=${120} /></a>
      ${node.status && html` · <${Text} text=${node.status} max=${60} />`}</p>
    <ul>${shown.map((e) => {
      const other = graph.nodes.get(e.from === uid ? e.to : e.from);
      return html`<li key=${e.from + e.to}>${e.from === uid ? e.label : passive[e.label] ?? e.label} <${Text} text=${other.kind} max=${60} /> <${Text} text=${other.name} max=${80} /></li>`;
    })}
    ${ends.length > shown.length && html`<li>${plural(ends.length - shown.length, "more relation")}</li>`}</ul>
  </div>`;
}

const passive = {owns: "is owned by", "runs on": "runs", uses: "is used by", selects: "is selected by", "is bound to": "is bound to", delivers: "is delivered by"};

function Picture({graph, layout}) {
  const plan = useMemo(() => layout(graph), [graph]);
  const [chosen, setSelected] = useState(graph.root.uid);
  // The chosen resource may be gone.
  const selected = graph.nodes.has(chosen) ? chosen : graph.root.uid;
  const [view, setView] = useState({x: 0, y: 0, scale: 1});
  const [size, setSize] = useState({width: 800, height: 480});
  const svg = useRef(null);
  const drag = useRef(null);
  const nodes = useMemo(() => drawing({graph, plan}), [graph, plan]);

  const fit = () => {
    const {clientWidth: w, clientHeight: h} = svg.current.parentElement;
    const whole = Math.min(1.2, w / plan.width, h / plan.height);
    const scale = Math.max(minFit, whole);
    const root = plan.places.get(graph.root.uid);
    setSize({width: w, height: h});
    // A graph that is too large begins at the resource.
    setView(whole >= minFit ? {x: (plan.width - w / scale) / 2, y: (plan.height - h / scale) / 2, scale} : {x: root.x - 40, y: root.y + (height - h / scale) / 2, scale});
  };
  useEffect(() => {
    fit();
    const observer = new ResizeObserver(fit);
    observer.observe(svg.current.parentElement);
    return () => observer.disconnect();
  }, [plan]);
  useEffect(() => {
    for (const element of svg.current.querySelectorAll('.node[tabindex="0"]')) element.setAttribute("tabindex", "-1");
    elementOf(selected)?.setAttribute("tabindex", "0");
  }, [selected, nodes]);

  const elementOf = (uid) => svg.current.querySelector(`[data-uid="${CSS.escape(uid)}"]`);
  const visit = (uid) => {
    setSelected(uid);
    elementOf(uid)?.focus({preventScroll: true});
    const p = plan.places.get(uid);
    const [w, h] = [size.width / view.scale, size.height / view.scale];
    const inside = p.x >= view.x && p.y >= view.y && p.x + width <= view.x + w && p.y + height <= view.y + h;
    if (!inside) setView({...view, x: p.x - w / 2 + width / 2, y: p.y - h / 2});
  };
  const open = (uid) => {
    const node = graph.nodes.get(uid);
    go("resource", Object.fromEntries(new URLSearchParams(resourceLink(node.cluster, node.properties, {graph: "on"}).split("?")[1])));
  };
  const zoom = (factor) => {
    const scale = Math.max(0.15, Math.min(3, view.scale * factor));
    const [w, h] = [size.width, size.height];
    setView({scale, x: view.x + (w / view.scale - w / scale) / 2, y: view.y + (h / view.scale - h / scale) / 2});
  };
  const uidAt = (event) => event.target.closest?.("[data-uid]")?.getAttribute("data-uid");
  const keys = (event) => {
    const uid = uidAt(event);
    if (!uid || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const to = next(graph, plan, uid, event.key);
      if (to) visit(to);
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(uid);
    } else if (event.key === " ") {
      event.preventDefault();
      setSelected(uid);
    } else if (event.key === "+" || event.key === "-") {
      zoom(event.key === "+" ? 1.25 : 0.8);
    }
  };
  const down = (event) => {
    if (event.button !== 0) return;
    drag.current = {x: event.clientX, y: event.clientY, view, moved: false, uid: uidAt(event)};
  };
  const move = (event) => {
    const from = drag.current;
    if (!from || (!from.moved && Math.hypot(event.clientX - from.x, event.clientY - from.y) < 4)) return;
    if (!from.moved) svg.current.setPointerCapture(event.pointerId);
    from.moved = true;
    setView({...from.view, x: from.view.x - (event.clientX - from.x) / from.view.scale, y: from.view.y - (event.clientY - from.y) / from.view.scale});
  };
  const up = () => {
    const from = drag.current;
    drag.current = null;
    if (from && !from.moved && from.uid) visit(from.uid);
  };
  const wheel = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 0.87);
  };
  useEffect(() => {
    const element = svg.current;
    element.addEventListener("wheel", wheel, {passive: false});
    return () => element.removeEventListener("wheel", wheel);
  });

  return html`<div class="graph">
    <div class="actions">
      <button type="button" onClick=${() => zoom(1.25)} aria-label="Zoom in">+</button>
      <button type="button" onClick=${() => zoom(0.8)} aria-label="Zoom out">−</button>
      <button type="button" onClick=${fit}>Fit</button>
      <span class="note">${plural(graph.nodes.size, "resource")}${graph.omitted > 0 ? `, ${number(graph.omitted)} more are not shown` : ""}. Arrow keys walk, Enter opens.</span>
    </div>
    <div class="picture">
      <svg ref=${svg} role="group" aria-label="Related resources" viewBox=${`${view.x} ${view.y} ${size.width / view.scale} ${size.height / view.scale}`}
        onKeyDown=${keys} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${() => { drag.current = null; }} onDblClick=${(e) => uidAt(e) && open(uidAt(e))}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z" /></marker>
          <marker id="arrow-exact" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="arrow exact" d="M0 0L8 4L0 8z" /></marker>
        </defs>
        ${nodes}
        <g>${exact(graph, plan, selected)}
          <rect class="selection" x=${plan.places.get(selected).x - 3} y=${plan.places.get(selected).y - 3} width=${width + 6} height=${height + 6} rx="7" /></g>
      </svg>
    </div>
    <${Selected} graph=${graph} uid=${selected} />
  </div>`;
}

// RelatedGraph reads and shows the graph of a resource.
export function RelatedGraph({which, version}) {
  const key = JSON.stringify(which);
  // The code of the layout is loaded with the first graph, at the same time as its data.
  const {data, error, loading} = useRequest(async (signal) => {
    const [graph, {layout}] = await Promise.all([graphOf(which, signal), import("./layout.js")]);
    return graph && {graph, layout};
  }, [key, version]);
  if (data) return html`<${Picture} key=${data.graph.root.uid} ...${data} />`;
  if (error) return html`<${Problem} error=${error} what="related resources" />`;
  return html`<p class="note" role="status">${loading ? "Loading the graph …" : "The resource does not exist any more."}</p>`;
}
