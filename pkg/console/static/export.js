// Exports of a search: files, and the commands that do the same.

import {aborted} from "./api.js";
import {exported, valueOf} from "./columns.js";
import {all} from "./find.js";
import {quote, selectors, words} from "./query.js";
import {number, operands, plain, shell} from "./text.js";
import {Command, Dialog, Problem, html, useEffect, useRef, useState} from "./view.js";

// maxExported bounds the resources in a file.
const maxExported = 100_000;

// csv returns a cell. A text that a spreadsheet would run as a formula begins with an apostrophe, also after a character
// that some spreadsheets take as the end of a cell.
function csv(value) {
  const text = plain(value);
  const safe = /^[+-]?[\d.]+$/.test(text) ? text : text.replace(/(?<=^|[;\t\r\n])(?="*[=+\-@\t\r\n])/g, "'");
  return /[",;\t\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function toCSV(items) {
  const names = exported(items);
  const lines = items.map((item) => names.map((name) => csv(name === "cluster" ? item.cluster : valueOf(item, name))).join(","));
  return new Blob([[names.map(csv).join(","), ...lines].join("\r\n"), "\r\n"], {type: "text/csv"});
}

const toJSON = (items) => new Blob([JSON.stringify(items.map(({uid, cluster, properties}) => ({uid, cluster, properties})), null, 1), "\n"], {type: "application/json"});

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// commands returns the commands that do the same as a search.
export function commands({query, kind, sort}) {
  const terms = [...words(query), ...(kind ? [`kind:${quote(kind)}`] : [])];
  const clusteradm = (...options) => ["clusteradm search", ...options, ...(sort ? ["--order-by", shell(sort)] : []), operands(terms)].join(" ");
  const {fieldSelector, labelSelector, exact} = selectors(query, kind);
  const kubectl = exact && ["kubectl get fr -A", ...(fieldSelector ? ["--field-selector", shell(fieldSelector)] : []), ...(labelSelector ? ["-l", shell(labelSelector)] : [])].join(" ");
  return {clusteradm: clusteradm(), json: clusteradm("-o json"), kubectl};
}

export function Export({state, result, onClose}) {
  const [running, setRunning] = useState(null);
  const [done, setDone] = useState("");
  const [error, setError] = useState(null);
  const controller = useRef(null);
  useEffect(() => () => controller.current?.abort(), []);

  const run = async (format, type) => {
    controller.current?.abort();
    controller.current = new AbortController();
    const {signal} = controller.current;
    setError(null);
    setDone("");
    setRunning(`0 of ${number(result.count)}`);
    try {
      const items = [];
      const more = await all(state, maxExported, signal, (some, count) => {
        items.push(...some);
        setRunning(`${number(items.length)} of ${number(count)}`);
      });
      save(format(items), `search.${type}`);
      setDone(more ? `The file contains the first ${number(items.length)} resources. Use a narrower query, or a command, for the others.` : `The file contains ${number(items.length)} resources.`);
    } catch (failed) {
      if (!aborted(failed)) setError(failed);
    }
    setRunning(null);
  };
  const {clusteradm, json, kubectl} = commands(state);
  return html`<${Dialog} title="Export" onClose=${onClose}>
    <h3>Files</h3>
    <p><button type="button" disabled=${running} onClick=${() => run(toCSV, "csv")}>CSV</button> <button type="button" disabled=${running} onClick=${() => run(toJSON, "json")}>JSON</button></p>
    <p role="status">${running ? `Reading ${running} …` : done}</p>
    <${Problem} error=${error} what="these resources" />
    <h3>Commands</h3>
    <p><${Command} text=${clusteradm} label="clusteradm command" /></p>
    <p><${Command} text=${json} label="clusteradm command for JSON" /></p>
    ${kubectl ? html`<p><${Command} text=${kubectl} label="kubectl command" /></p>`
      : html`<p class="note">kubectl compares properties with = and != only, and has no keywords. Use clusteradm for this query.</p>`}
  </${Dialog}>`;
}
