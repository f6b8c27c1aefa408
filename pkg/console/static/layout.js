// The positions of the nodes of a graph. Many nodes of one kind with the same owner form a block, so that the layout stays
// fast and readable.

import {height, width} from "./graphdata.js";
import {Graph, layout as arrange} from "./vendor-dagre.js";

const gap = 8;
const title = 22;
// groupings are the ways to form blocks, from the most to the least detailed: the key of a block, and its minimum size. The
// first one with at most maxCells nodes and blocks is used, because the time of the layout grows with the square of them.
const groupings = [
  {key: (node, nodes) => `${node.kind}\n${nodes.has(node.owner) ? node.owner : ""}`, min: 7},
  {key: (node) => node.kind, min: 3},
  {key: () => "", min: 1},
];
const maxCells = 50;
// maxLines bounds the lines that the layout takes into account. Above it, some are drawn where there is space.
const maxLines = 80;

function cellsOf(nodes, {key, min}) {
  const members = new Map();
  for (const node of nodes.values()) {
    const name = key(node, nodes);
    if (!members.has(name)) members.set(name, []);
    members.get(name).push(node);
  }
  const cells = [];
  for (const [name, all] of members) {
    if (all.length < min) {
      for (const node of all) cells.push({id: node.uid, nodes: [node], width, height});
      continue;
    }
    all.sort((a, b) => (a.kind === b.kind ? (a.name < b.name ? -1 : 1) : a.kind < b.kind ? -1 : 1));
    const columns = Math.max(1, Math.round(Math.sqrt(all.length / 3)));
    const rows = Math.ceil(all.length / columns);
    cells.push({
      id: `block ${name}`, kind: all.every((n) => n.kind === all[0].kind) ? all[0].kind : "Resources", nodes: all, columns, block: true,
      width: columns * (width + gap) + gap, height: title + rows * (height + gap) + gap,
    });
  }
  return cells;
}

// forest returns lines that connect all cells that are connected, without cycles.
function forest(cells, lines) {
  const parent = new Map(cells.map((cell) => [cell.id, cell.id]));
  const root = (id) => {
    let at = id;
    while (parent.get(at) !== at) at = parent.get(at);
    return at;
  };
  return lines.filter(({from, to}) => {
    const [a, b] = [root(from), root(to)];
    parent.set(a, b);
    return a !== b;
  });
}

// layout returns {places: uid → {x, y}, blocks, lines, width, height}. A line connects two nodes or blocks.
export function layout({nodes, edges}) {
  let cells;
  for (const grouping of groupings) {
    cells = cellsOf(nodes, grouping);
    if (cells.length <= maxCells) break;
  }
  const cellOf = new Map(cells.flatMap((cell) => cell.nodes.map((node) => [node.uid, cell.id])));
  const lines = new Map();
  for (const {from, to, label} of edges) {
    const [a, b] = [cellOf.get(from), cellOf.get(to)];
    if (a !== b) lines.set(JSON.stringify([a, b]), {from: a, to: b, label});
  }
  const graph = new Graph();
  graph.setGraph({rankdir: "LR", nodesep: 18, ranksep: 70, marginx: 16, marginy: 16});
  graph.setDefaultEdgeLabel(() => ({}));
  for (const cell of cells) graph.setNode(cell.id, {width: cell.width, height: cell.height});
  const all = [...lines.values()];
  for (const {from, to} of all.length <= maxLines ? all : forest(cells, all)) graph.setEdge(from, to);
  arrange(graph);

  const places = new Map();
  const blocks = [];
  for (const cell of cells) {
    const at = graph.node(cell.id);
    const [x, y] = [at.x - cell.width / 2, at.y - cell.height / 2];
    if (cell.block) blocks.push({id: cell.id, kind: cell.kind, count: cell.nodes.length, x, y, width: cell.width, height: cell.height});
    cell.nodes.forEach((node, i) => {
      places.set(node.uid, cell.block
        ? {x: x + gap + (i % cell.columns) * (width + gap), y: y + title + gap + Math.floor(i / cell.columns) * (height + gap)}
        : {x, y});
    });
  }
  const straight = ({from, to}) => {
    const [a, b] = [graph.node(from), graph.node(to)];
    return [{x: a.x + a.width / 2, y: a.y}, {x: b.x - b.width / 2, y: b.y}];
  };
  const size = graph.graph();
  return {
    places, blocks, width: size.width || width, height: size.height || height,
    lines: all.map((line) => ({...line, points: graph.edge(line.from, line.to)?.points ?? straight(line)})),
  };
}
