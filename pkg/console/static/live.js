// Live updates of a search. The watch says that something has changed; searches say what the result is now. A watch can
// select more than the query, because selectors know no keywords, wildcards and ranges.

import {aborted, groups} from "./api.js";
import {selectors} from "./query.js";
import {watch} from "./watch.js";

const settle = 1000;
const flushEvery = 250;
const refreshEvery = 1000;
// rest is the least time between two refreshes, as a multiple of the time that a refresh takes.
const rest = 5;
const pollEvery = 10_000;

export const uidOf = (object) => {
  const {namespace, name} = object.metadata;
  return name.startsWith("cluster__") ? name : `${namespace}/${name}`;
};

// follow calls onChanges with the changes of shown resources, by UID, and refresh when the result may have changed. onState
// receives "watching" or "polling". It returns a function that ends it.
export function follow({query, kind, shows, onChanges, refresh, onState}) {
  const controller = new AbortController();
  const {signal} = controller;
  let changes = new Map();
  let dirty = false;
  let refreshing = false;
  let next = 0;

  const flush = setInterval(() => {
    if (changes.size > 0) {
      onChanges(changes);
      changes = new Map();
    }
    if (!dirty || refreshing || document.hidden || Date.now() < next) return;
    dirty = false;
    refreshing = true;
    const began = Date.now();
    refresh(signal).catch(() => {}).finally(() => {
      refreshing = false;
      next = Date.now() + Math.max(refreshEvery, rest * (Date.now() - began));
    });
  }, flushEvery);
  signal.addEventListener("abort", () => clearInterval(flush), {once: true});

  const onEvent = ({type, object}) => {
    dirty = true;
    const uid = uidOf(object);
    if (shows(uid)) changes.set(uid, type === "DELETED" ? null : object);
  };
  const run = async () => {
    const {fieldSelector, labelSelector} = selectors(query, kind);
    await watch(`${groups.search}/fleetresources`, {fieldSelector, labelSelector}, {
      onEvent, signal,
      onStart: () => { onState("watching"); dirty = true; },
    });
    if (signal.aborted) return;
    // The watch selects too many resources, or the user may not watch.
    onState("polling");
    const poll = setInterval(() => { dirty = true; }, pollEvery);
    signal.addEventListener("abort", () => clearInterval(poll), {once: true});
  };
  const start = setTimeout(() => run().catch((error) => aborted(error) || console.error(error)), settle);
  signal.addEventListener("abort", () => clearTimeout(start), {once: true});
  return () => controller.abort();
}
