// Texts of clusters are hostile. Everything on this page that a cluster has reported passes these functions.

const hidden = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu;
const short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"};

// visible returns a text with control characters, marks of direction and other invisible characters as escapes.
export function visible(text) {
  return String(text).replace(hidden, (c) => {
    const code = c.codePointAt(0);
    return short[c] ?? (code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);
  });
}

// cut returns the first characters of a text, and whether there are more.
export function cut(text, max) {
  if (text.length <= max) return [text, false];
  let end = max;
  const code = text.charCodeAt(end - 1);
  if (code >= 0xd800 && code < 0xdc00) end--;
  return [text.slice(0, end), true];
}

// plain returns the text of a property: lists with commas, maps as key=value.
export function plain(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => (v === "" ? k : `${k}=${plain(v)}`)).join(", ");
  return String(value);
}

export const number = (n) => Number(n).toLocaleString("en-US");

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// age returns the time since a date as kubectl prints it, or an empty text if it is not a date.
export function age(date, now = Date.now()) {
  const at = typeof date === "string" ? Date.parse(date) : NaN;
  if (Number.isNaN(at)) return "";
  const s = Math.max(0, Math.floor((now - at) / 1000));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 120) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h}h`;
  const d = Math.floor(h / 24);
  return d < 730 ? `${d}d` : `${Math.floor(d / 365)}y`;
}

export const isTime = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(value) && !Number.isNaN(Date.parse(value));

// shell returns a word for a shell. Control characters are escapes, so that a terminal does not act on a pasted command.
export function shell(word) {
  if (/^[A-Za-z0-9_./:=,@%+-]+$/.test(word)) return word;
  if (visible(word) === word) return `'${word.replaceAll("'", `'\\''`)}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(hidden, (c) => visible(c))}'`;
}

// operands returns the operands at the end of a command. A text of a cluster that begins with "-" must not be an option.
export const operands = (words) => [...(words.some((w) => w.startsWith("-")) ? ["--"] : []), ...words.map(shell)].join(" ");

// indexOfByte returns the index in a text of a byte offset of its UTF-8 form.
export function indexOfByte(text, offset) {
  let bytes = 0;
  let index = 0;
  for (const c of text) {
    if (bytes >= offset) break;
    const code = c.codePointAt(0);
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    index += c.length;
  }
  return index;
}
