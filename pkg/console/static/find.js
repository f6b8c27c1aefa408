// Searches. A search of the page is one request: the first items, and the number of resources of each kind.

import {ask, groups} from "./api.js";

export const pageSize = 50;
// overview is the number of kinds, and of items of each, that are shown if a query finds several kinds.
export const overviewKinds = 12;
export const overviewItems = 5;

const searches = `${groups.search}/searches`;

export const ofKind = (kind) => (kind ? [{property: "kind", operator: "=", values: [kind]}] : undefined);

// onlyKind returns true if a query surely finds one kind, so that its items can be ordered by name at once.
const onlyKind = (query) => /(?:^|\s)kind(?::|=)[^\s,*!<>="]+(?:\s|$)/.test(query);

const defaultOrder = ["name", "cluster"];

// orderOf returns the order of a table: of the user, or by name.
export const orderOf = (sort) => (sort ? [sort, ...(sort.startsWith("name") ? ["cluster"] : ["name"])] : defaultOrder);

// find returns kinds, moreKinds, total, kind, count, items and warnings. kind and sort may be empty. Kinds and their total are
// those of the query, also if kind is not empty. If kind is empty and there are several kinds, items contains the first items
// of any kind.
export async function find({query, kind, sort, page}, signal) {
  const single = kind || onlyKind(query);
  const request = async (ordered) => {
    const items = {query, filters: ofKind(kind), limit: pageSize, offset: (page - 1) * pageSize || undefined, orderBy: ordered ? orderOf(sort) : undefined};
    const counts = {query, output: "Count", countBy: "kind"};
    // The start shows no items.
    if (!query && !kind) return ofCounts(await ask(searches, "Search", counts, {signal}));
    if (!kind) return ofCounts(await ask(searches, "Search", {...items, countBy: "kind"}, {signal}));
    const status = await ask(searches, "Search", {searches: [items, counts]}, {signal});
    const [found, all] = status.results;
    return {...ofCounts(all), ...found, warnings: status.warnings};
  };
  let found = await request(single || sort);
  const one = kind || onlyOne(found.kinds);
  if (one && !single && !sort && found.count > pageSize) found = await request(true);
  const {kinds, moreKinds, total, count, items = [], warnings = []} = found;
  const out = {kinds, moreKinds, total, kind: one, count, items, warnings};
  if (one && out.count <= pageSize && !single && !sort) out.items.sort(byName);
  return out;
}

const ofCounts = (found) => ({
  ...found, total: found.count, moreKinds: found.moreCounts === true, kinds: (found.counts ?? []).map(({value, count}) => ({kind: value, count})),
});

const onlyOne = (kinds) => (kinds.length === 1 ? kinds[0].kind : "");

const text = (item, name) => String(item.properties[name] ?? "");
const byName = (a, b) => (text(a, "name") < text(b, "name") ? -1 : text(a, "name") > text(b, "name") ? 1 : a.cluster < b.cluster ? -1 : 1);

// preview returns the first items of each kind, for the first kinds.
export async function preview(query, kinds, signal) {
  const shown = kinds.slice(0, overviewKinds);
  const status = await ask(searches, "Search", {searches: shown.map(({kind}) => ({query, filters: ofKind(kind), limit: overviewItems}))}, {signal});
  return new Map(shown.map(({kind}, i) => [kind, {items: status.results?.[i]?.items ?? [], count: status.results?.[i]?.count ?? 0}]));
}

// all calls onItems with chunks of all items of a search, up to max.
export async function all({query, kind, sort}, max, signal, onItems) {
  let token;
  let read = 0;
  do {
    const found = await ask(searches, "Search", {
      query, filters: ofKind(kind), limit: Math.min(5000, max - read), orderBy: sort ? orderOf(sort) : undefined, continue: token,
    }, {signal});
    onItems(found.items ?? [], found.count ?? 0);
    read += found.items?.length ?? 0;
    token = found.continue;
  } while (token && read < max);
  return Boolean(token);
}

// identity returns the filters that find one resource by its name.
export function identity({cluster, group, kind, namespace, name}) {
  const is = (property, value) => (value ? {property, operator: "=", values: [value]} : {property, values: ["!*"]});
  return [is("cluster", cluster), is("kind", kind), is("apigroup", group), is("namespace", namespace), {property: "name", operator: "=", values: [name]}];
}

// related returns one resource and the resources that are related to it, or undefined if it does not exist.
export async function related(which, limit, signal) {
  const found = await ask(searches, "Search", {filters: identity(which), output: "Related", limit: 10, relatedLimit: limit}, {signal});
  // Names that are numbers are compared as numbers.
  const item = found.items?.find((one) => text(one, "name") === which.name);
  if (!item) return undefined;
  const of = (one) => found.items.length === 1 || one.relatedTo?.includes(item.uid);
  return {item, related: (found.related ?? []).map((r) => ({...r, items: (r.items ?? []).filter(of)})), warnings: found.warnings ?? []};
}

// relatedOf returns the resources that are related to items of one kind in one cluster. They are selected by their names,
// so relatedTo can contain more than these items.
export async function relatedOf(items, limit, signal) {
  const values = (name) => [...new Set(items.map((item) => text(item, name)))];
  const found = await ask(searches, "Search", {
    output: "Related", limit: 0, relatedLimit: limit,
    filters: [["cluster", [items[0].cluster]], ["kind", values("kind")], ["namespace", values("namespace")], ["name", values("name")]]
      .filter(([, all]) => all.length > 0 && all[0] !== "").map(([property, all]) => ({property, operator: "=", values: all})),
  }, {signal});
  return found.related ?? [];
}
