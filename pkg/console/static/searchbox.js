// The box for queries. It completes properties and values, and shows errors at their position.

import {ask, delay, groups} from "./api.js";
import {at, quote} from "./query.js";
import {cut, indexOfByte, number, visible} from "./text.js";
import {Text, html, useEffect, useRef, useState} from "./view.js";

const maxOptions = 50;
const completeAfter = 40;
const agesOf = [["hour", "younger than an hour"], ["day", "younger than a day"], ["week", "younger than a week"], ["month", "younger than 30 days"], ["year", "younger than 365 days"]];

const schemas = new Map();

// properties returns the properties of the resources that match a query.
async function properties(rest, signal) {
  const known = schemas.get(rest);
  if (known && Date.now() - known.at < 60_000) return known.found;
  const status = await ask(`${groups.search}/searchschemas`, "SearchSchema", {query: rest}, {signal});
  const found = [{name: "cluster", type: "String"}, ...(status.properties ?? []).filter((p) => p.name !== "cluster")];
  if (schemas.size > 20) schemas.clear();
  schemas.set(rest, {found, at: Date.now()});
  return found;
}

// forget removes what was completed, because permissions may have changed.
export const forget = () => schemas.clear();

// complete returns the options for what is typed at the cursor.
async function complete(text, cursor, signal) {
  const typed = at(text, cursor);
  const insert = (value, after) => ({text: text.slice(0, typed.start) + value + after + text.slice(typed.end), cursor: typed.start + value.length + after.length});
  if (typed.property === undefined) {
    const word = typed.word.toLowerCase();
    const all = await properties(typed.rest, signal);
    const starts = all.filter((p) => p.name.toLowerCase().startsWith(word));
    const contains = all.filter((p) => !p.name.toLowerCase().startsWith(word) && p.name.toLowerCase().includes(word));
    return [...starts, ...contains].slice(0, maxOptions).map((p) => ({value: p.name, note: p.type, ...insert(p.name, ":")}));
  }
  const spec = {query: typed.rest, property: typed.property, prefix: typed.prefix, limit: maxOptions};
  const status = await ask(`${groups.search}/searchcompletions`, "SearchCompletion", spec, {signal});
  if (status.type === "Time") {
    return agesOf.filter(([name]) => name.startsWith(typed.prefix)).map(([value, note]) => ({value, note, ...insert(value, "")}));
  }
  return (status.values ?? []).filter((v) => v.value !== typed.prefix).map((v) => ({value: v.value, note: number(v.count), ...insert(quote(v.value), "")}));
}

// positionOf returns the position, the message and the suggestion in an error about a query, or null.
export function positionOf(error, text) {
  const cause = error?.causes?.find((c) => /(^|\.)query$/.test(c.field ?? ""));
  const found = cause && /^[\s\S]*": position (\d+): ([\s\S]*)$/.exec(cause.message ?? "");
  if (!found) return null;
  const [, message, suggestion = ""] = /^([\s\S]*?)(?:; use ([\s\S]*) instead)?$/.exec(found[2]);
  return {position: indexOfByte(text, Number(found[1])), message, suggestion};
}

// Mistake shows an error below the text of the query, with a mark at its position.
function Mistake({text, mistake}) {
  const {position, message, suggestion} = mistake;
  const from = Math.max(0, position - 40);
  const [before] = cut(text.slice(from, position), 40);
  const [after] = cut(text.slice(position), 40);
  const wrong = after.match(/^\S+/u)?.[0] ?? "";
  return html`<p class="mistake" id="mistake">
    <code><bdi>${from > 0 && "…"}${visible(before)}<mark>${visible(wrong) || "⌃"}</mark>${visible(after.slice(wrong.length))}</bdi></code>
    <span>Position ${position + 1}: <${Text} text=${message} max=${400} />.${suggestion && html` Did you mean <code><${Text} text=${suggestion} max=${200} /></code>?`}</span>
  </p>`;
}

// SearchBox edits a query. onType receives each change, onCommit the end of typing.
export function SearchBox({query, error, onType, onCommit}) {
  const input = useRef(null);
  const request = useRef(null);
  // typed is the last text that was typed here. Another query comes from a link.
  const typed = useRef(null);
  const [options, setOptions] = useState([]);
  const [active, setActive] = useState(-1);
  const mistake = positionOf(error, query);

  useEffect(() => () => request.current?.abort(), []);
  useEffect(() => {
    if (active >= 0) document.getElementById(`option-${active}`)?.scrollIntoView({block: "nearest"});
  }, [active]);
  useEffect(() => {
    if (query === typed.current) return;
    typed.current = query;
    input.current.value = query;
  }, [query]);

  const close = () => {
    request.current?.abort();
    setOptions([]);
    setActive(-1);
  };
  const suggest = (always) => {
    request.current?.abort();
    const controller = new AbortController();
    request.current = controller;
    const {value, selectionStart} = input.current;
    const here = at(value, selectionStart);
    if (!always && here.property === undefined && here.word === "") return close();
    setActive(-1);
    // The results come first.
    delay(always ? 0 : completeAfter, controller.signal).then(() => complete(value, selectionStart, controller.signal)).then(
      (found) => !controller.signal.aborted && setOptions(found),
      () => !controller.signal.aborted && setOptions([]),
    );
  };
  const type = (value) => {
    typed.current = value;
    onType(value);
  };
  const choose = (option) => {
    input.current.value = option.text;
    input.current.setSelectionRange(option.cursor, option.cursor);
    input.current.focus();
    type(option.text);
    if (option.text[option.cursor - 1] === ":") suggest(true);
    else close();
  };
  const keys = (event) => {
    if (event.isComposing) return;
    const open = options.length > 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return suggest(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((active + step + options.length + (active < 0 && step < 0 ? 1 : 0)) % options.length);
    } else if ((event.key === "Enter" || event.key === "Tab") && open && active >= 0) {
      event.preventDefault();
      choose(options[active]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      close();
      onCommit();
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  const typedInput = (event) => {
    type(event.target.value);
    suggest(false);
  };
  const label = mistake ? "mistake" : "search-help";
  return html`<form class="searchbox" role="search" onSubmit=${(e) => e.preventDefault()}>
    <label for="search">Search the fleet</label>
    <div class="combobox">
      <input id="search" ref=${input} type="search" role="combobox" autocomplete="off" autocapitalize="off" spellcheck=${false}
        aria-expanded=${options.length > 0} aria-controls="options" aria-autocomplete="list" aria-describedby=${label} aria-invalid=${Boolean(mistake)}
        aria-activedescendant=${active >= 0 ? `option-${active}` : undefined} placeholder="kind:Pod status!=Running" maxlength="60000"
        onInput=${typedInput} onKeyDown=${keys} onBlur=${close} />
      <ul id="options" role="listbox" aria-label="Completions" hidden=${options.length === 0}>
        ${options.map((option, i) => html`<li key=${option.value} id=${`option-${i}`} role="option" aria-selected=${i === active} class=${i === active ? "active" : ""}
          onMouseDown=${(e) => { e.preventDefault(); choose(option); }}><${Text} text=${option.value === "" ? '""' : option.value} max=${80} /><span class="count">${option.note}</span></li>`)}
      </ul>
    </div>
    ${mistake ? html`<${Mistake} text=${query} mistake=${mistake} />`
      : html`<p id="search-help" class="help"><kbd>/</kbd> searches, <kbd>↓</kbd> completes, <kbd>Enter</kbd> goes to the results, <kbd>Esc</kbd> goes back.</p>`}
  </form>`;
}
