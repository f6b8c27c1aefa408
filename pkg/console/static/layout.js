// The positions of the nodes of a graph. Many nodes of one kind with the same owner form a block, so that the layout stays
// fast and readable.

import {Graph, layout as arrange} from "./vendor-dagre.js";

export const width = 200;
export const height = 44;
const gap = 8;
const title = 22;
const minBlock = 7;

// layout returns {places: uid → {x, y}, blocks, lines, width, height}. A line connects two nodes or blocks.
export function layout({nodes, edges}) {
  const members = new Map();
  for (const node of nodes.values()) {
    const key = `${node.kind}\n${nodes.has(node.owner) ? node.owner : ""}`;
    members.set(key, [...(members.get(key) ?? []), node]);
  }
  const cellOf = new Map();
  const cells = new Map();
  for (const [key, all] of members) {
    if (all.length < minBlock) {
      for (const node of all) { cellOf.set(node.uid, node.uid); cells.set(node.uid, {id: node.uid, nodes: [node], width, height}); }
      continue;
    }
    all.sort((a, b) => (a.name < b.name ? -1 : 1));
    const columns = Math.max(1, Math.round(Math.sqrt(all.length / 3)));
    const rows = Math.ceil(all.length / columns);
    cells.set(key, {id: key, kind: all[0].kind, nodes: all, columns, block: true, width: columns * (width + gap) + gap, height: title + rows * (height + gap) + gap});
    for (const node of all) cellOf.set(node.uid, key);
  }
  const graph = new Graph();
  graph.setGraph({rankdir: "LR", nodesep: 18, ranksep: 70, marginx: 16, marginy: 16});
  graph.setDefaultEdgeLabel(() => ({}));
  for (const cell of cells.values()) graph.setNode(cell.id, {width: cell.width, height: cell.height});
  const lines = new Map();
  for (const {from, to, label} of edges) {
    const [a, b] = [cellOf.get(from), cellOf.get(to)];
    if (a === b) continue;
    const key = JSON.stringify([a, b]);
    if (!lines.has(key)) { lines.set(key, {from: a, to: b, label}); graph.setEdge(a, b); }
  }
  arrange(graph);

  const places = new Map();
  const blocks = [];
  for (const cell of cells.values()) {
    const at = graph.node(cell.id);
    const [x, y] = [at.x - cell.width / 2, at.y - cell.height / 2];
    if (cell.block) blocks.push({id: cell.id, kind: cell.kind, count: cell.nodes.length, x, y, width: cell.width, height: cell.height});
    cell.nodes.forEach((node, i) => {
      places.set(node.uid, cell.block
        ? {x: x + gap + (i % cell.columns) * (width + gap), y: y + title + gap + Math.floor(i / cell.columns) * (height + gap)}
        : {x, y});
    });
  }
  const all = graph.graph();
  return {
    places, blocks, width: all.width || width, height: all.height || height,
    lines: [...lines.values()].map((line) => ({...line, points: graph.edge(line.from, line.to).points})),
  };
}
