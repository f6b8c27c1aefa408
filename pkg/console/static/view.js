// What all views share: the view library, texts, problems and requests that belong to a view.

import {html, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState} from "./vendor-htm-preact.js";
import {aborted, connection} from "./api.js";
import {age, cut, isTime, number, plain, visible} from "./text.js";

export {html, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState};

// maxCell is the number of characters of a value in a table.
export const maxCell = 100;

// Text shows a reported text. bdi isolates its direction from the text around it.
export function Text({text, max = Infinity}) {
  const [shown, more] = cut(visible(plain(text)), max);
  return html`<bdi class="reported">${shown}${more && "…"}</bdi>`;
}

// label returns a reported text for an attribute such as aria-label.
export const label = (text) => cut(visible(plain(text)), maxCell)[0];

// Age shows the time since a date.
export function Age({date}) {
  if (!isTime(date)) return html`<${Text} text=${date} max=${maxCell} />`;
  return html`<time datetime=${date} title=${new Date(date).toLocaleString()}>${age(date)}</time>`;
}

// Value shows a value of a property.
export function Value({value, max}) {
  return isTime(value) ? html`<span>${value} (<${Age} date=${value} />)</span>` : html`<${Text} text=${value} max=${max} />`;
}

// Problem shows an error of the API. If the user lacks a permission, that is no error of the page.
export function Problem({error, what}) {
  if (!error || error.unreachable) return null;
  if (error.forbidden) return html`<p class="note">You are not allowed to see ${what}.</p>`;
  if (error.missing) return html`<p class="note">This hub does not serve ${what}.</p>`;
  return html`<p class="problem" role="alert"><${Text} text=${error.message} max=${4000} /></p>`;
}

// Unread says that a view has not read all objects.
export const Unread = ({read, what}) => html`<p class="note">These are the first ${number(read)} ${what}. There are more, which the page has not read.</p>`;

export function Loading({what}) {
  return html`<p class="note" role="status">Loading ${what} …</p>`;
}

// Command shows a command and a button that copies it.
export function Command({text, label = "Command"}) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 2000);
    } catch { /* The browser does not allow it. The user can select the text. */ }
  };
  return html`<div class="command" role="group" aria-label=${label}>
    <code>${visible(text)}</code>
    <button type="button" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>
  </div>`;
}

// State shows a state with a mark. The mark differs in form, not only in colour.
export function State({state, children}) {
  const mark = {good: "●", bad: "▲", wait: "◆", unknown: "○"}[state];
  return html`<span class=${`state ${state}`}><span aria-hidden="true">${mark}</span> ${children}</span>`;
}

// useEpoch returns a number that changes whenever the hub responds again after an interruption.
export function useEpoch() {
  const [epoch, set] = useState(connection.epoch);
  useEffect(() => connection.subscribe(() => set(connection.epoch)), []);
  return epoch;
}

// useRequest runs a request for a view. A new request cancels the previous one. While the hub does not respond, the data
// stay. If the request is forbidden, they are removed. If the key changes, nothing of the previous request stays.
export function useRequest(load, deps, key) {
  const epoch = useEpoch();
  const [again, setAgain] = useState(0);
  const [state, setState] = useState({key, loading: true});
  useEffect(() => {
    const controller = new AbortController();
    setState((before) => ({...(before.key === key && before), key, loading: true}));
    load(controller.signal).then(
      (data) => !controller.signal.aborted && setState({key, data, loading: false}),
      (error) => {
        if (aborted(error) || controller.signal.aborted) return;
        setState((before) => ({key, data: error.unreachable || error.code === 429 ? before.data : undefined, error, loading: false}));
        if (error.code === 429) setTimeout(() => !controller.signal.aborted && setAgain((n) => n + 1), Math.max(1, error.retryAfter) * 1000);
      },
    );
    return () => controller.abort();
  }, [...deps, epoch, again]);
  return {...(state.key === key ? state : {loading: true}), reload: useCallback(() => setAgain((n) => n + 1), [])};
}

// useTick renders a view again every few seconds, for ages.
export function useTick(seconds) {
  const [tick, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && set((n) => n + 1), seconds * 1000);
    return () => clearInterval(timer);
  }, []);
  return tick;
}

// Dialog shows its children above the page. Esc closes it.
export function Dialog({title, onClose, children}) {
  const ref = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${ref} aria-label=${title} onClose=${onClose} onClick=${(e) => e.target === ref.current && ref.current.close()}>
    <div class="dialog">
      <header><h2>${title}</h2><button type="button" aria-label="Close" onClick=${() => ref.current.close()}>✕</button></header>
      ${children}
    </div>
  </dialog>`;
}
