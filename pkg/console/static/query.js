// The text of a query, as far as the page must understand it: to complete words, to build selectors and commands. The
// server parses it and reports errors.

const operator = /^(?:!=|!:|<=|>=|=|<|>|:)/;
const name = /^[A-Za-z_][A-Za-z0-9_.\-/]*/;
const own = /^(?:!=|<=|>=|=|<|>|!)/;
const ages = new Set(["hour", "day", "week", "month", "year"]);

// readWord reads a word up to a space, or up to a comma in a value.
function readWord(text, at, value) {
  let out = "";
  let wildcard = false;
  let closed = true;
  while (at < text.length) {
    const c = text[at];
    if (/\s/u.test(c) || (value && c === ",")) break;
    if (c === '"' || c === "'") {
      closed = false;
      for (at++; at < text.length; at++) {
        if (text[at] === c) { closed = true; at++; break; }
        if (c === '"' && text[at] === "\\" && (text[at + 1] === '"' || text[at + 1] === "\\")) at++;
        out += text[at];
      }
      continue;
    }
    if (c === "\\" && at + 1 < text.length) { out += text[at + 1]; at += 2; continue; }
    if (c === "*") wildcard = true;
    out += c;
    at++;
  }
  return {text: out, wildcard, closed, end: at};
}

// parse returns the terms of a query. A term is a keyword, or a filter with property, op and values.
export function parse(text) {
  const terms = [];
  let at = 0;
  for (;;) {
    while (at < text.length && /\s/u.test(text[at])) at++;
    if (at >= text.length) return terms;
    const start = at;
    const property = name.exec(text.slice(at))?.[0] ?? "";
    const op = property ? operator.exec(text.slice(at + property.length))?.[0] ?? "" : "";
    if (!op) {
      const word = readWord(text, at, false);
      at = Math.max(word.end, at + 1);
      terms.push({start, end: at, raw: text.slice(start, at), keyword: word.text, wildcard: word.wildcard});
      continue;
    }
    at += property.length + op.length;
    const values = [];
    for (;;) {
      const from = at;
      const valueOp = op === ":" ? own.exec(text.slice(at))?.[0] ?? "" : "";
      const word = readWord(text, at + valueOp.length, true);
      values.push({start: from + valueOp.length, end: word.end, op: valueOp, text: word.text, wildcard: word.wildcard});
      at = word.end;
      if (text[at] !== ",") break;
      at++;
    }
    terms.push({start, end: at, raw: text.slice(start, at), property, op, values});
  }
}

// at returns what is being typed at the cursor: a word, or the value of a property. rest is the query without it.
export function at(text, cursor) {
  const term = parse(text).find((t) => t.start <= cursor && cursor <= t.end);
  if (!term) return {word: "", start: cursor, end: cursor, rest: text};
  const rest = `${text.slice(0, term.start)} ${text.slice(term.end)}`.trim();
  const value = term.values?.find((v) => v.start <= cursor && cursor <= v.end);
  if (value) return {property: term.property, prefix: value.text, start: value.start, end: value.end, rest};
  if (term.property) return {word: "", start: cursor, end: cursor, rest: text};
  return {word: text.slice(term.start, cursor), start: term.start, end: term.end, rest};
}

// quote returns a value that the server takes literally.
export function quote(value) {
  if (value !== "" && !/[\s,"'\\*]/u.test(value) && !/^[!=<>]/.test(value)) return value;
  return `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

const escapeField = (value) => value.replace(/[\\,=]/g, "\\$&");
const labelValue = /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$/;
const labelKey = /^(?:[a-z0-9.-]+\/)?[A-Za-z0-9][A-Za-z0-9._-]*$/;

// selectors returns the field selector and the label selector of a query for FleetResources. They support = and != only:
// if exact is false, they select more than the query.
export function selectors(text, kind) {
  const fields = [];
  const labels = [];
  let exact = true;
  if (kind) fields.push(`kind=${escapeField(kind)}`);
  for (const term of parse(text)) {
    const negative = term.op === "!=" || term.op === "!:";
    const positive = term.op === ":" || term.op === "=";
    const simple = term.values?.every((v) => !v.op && !v.wildcard && v.text !== "" && !ages.has(v.text));
    if (!simple || (!negative && !positive) || (positive && term.values.length > 1 && term.property !== "label")) {
      exact = false;
      continue;
    }
    if (term.property !== "label") {
      for (const value of term.values) fields.push(`${term.property}${negative ? "!=" : "="}${escapeField(value.text)}`);
      continue;
    }
    const pairs = term.values.map((v) => v.text.split(/=(.*)/s));
    const key = pairs[0][0];
    if (pairs.some((p) => p[0] !== key || !labelKey.test(p[0]) || (p.length > 1 && !labelValue.test(p[1]))) || (pairs.length > 1 && pairs.some((p) => p.length < 2))) {
      exact = false;
    } else if (pairs[0].length < 2) {
      labels.push(negative ? `!${key}` : key);
    } else {
      labels.push(`${key} ${negative ? "notin" : "in"} (${pairs.map((p) => p[1]).join(",")})`);
    }
  }
  return {fieldSelector: fields.join(","), labelSelector: labels.join(","), exact};
}

// words returns the terms of a query as arguments of clusteradm search. A keyword with spaces is quoted.
export const words = (text) => parse(text).map((t) => (t.keyword !== undefined && /\s/u.test(t.keyword) ? quote(t.keyword) : t.raw));
