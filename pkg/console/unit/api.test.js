import {failure, serve} from "./page.js";
import assert from "node:assert/strict";
import {test} from "node:test";

import {ApiError, get, may, path, rows} from "../static/api.js";

test("names lead to no other path", () => {
  assert.equal(path("apis/x", "namespaces", "c1", "works", "a:b"), "apis/x/namespaces/c1/works/a%3Ab");
  for (const name of ["", ".", "..", "a/b", "../secrets", "%2e%2e"]) assert.equal(path("apis/x", name), "apis/x/_", name);
  assert.equal(path("apis/x", "a?b#c"), "apis/x/a%3Fb%23c");
});

test("lists end after 5,000 objects, and say so", async (t) => {
  const chunk = {columnDefinitions: [{name: "Name"}, {name: "Age"}], rows: Array.from({length: 500}, (_, i) => ({cells: [`w${i}`, "1d"], object: {metadata: {name: `w${i}`}}}))};
  const requests = serve(t, ({query}) => ({...chunk, metadata: {continue: `${Number(query.continue ?? 0) + 1}`}}));
  const all = await rows("apis/x/works");
  assert.deepEqual([all.rows.length, all.more, requests.length], [5000, true, 10]);
  assert.deepEqual(requests.map((r) => [r.query.limit, r.query.continue]), Array.from({length: 10}, (_, i) => ["500", i ? `${i}` : undefined]));
  assert.deepEqual(all.rows[1], {cells: {Name: "w1", Age: "1d"}, metadata: {name: "w1"}});
  serve(t, () => ({...chunk, metadata: {}}));
  const few = await rows("apis/x/works");
  assert.deepEqual([few.rows.length, few.more], [500, false]);
});

test("a failed review counts as no", async (t) => {
  serve(t, ({object}) => (object.spec.resourceAttributes.verb === "get" ? {status: {allowed: true}} : failure(500, {reason: "InternalError"})));
  assert.equal(await may({verb: "get"}), true);
  assert.equal(await may({verb: "approve"}), false);
});

test("an error has the message of the server, or that of its status", async (t) => {
  const answers = {denied: failure(403, {message: "no", reason: "Forbidden"}), proxy: new Response("<html>", {status: 403}), gone: failure(404), busy: new Response("", {status: 429, headers: {"Retry-After": "7"}})};
  serve(t, ({url}) => answers[url.split("/").pop()]);
  for (const [name, want] of Object.entries({
    denied: {message: "no", forbidden: true}, proxy: {message: "You are not allowed to do this.", forbidden: true}, gone: {missing: true}, busy: {code: 429, retryAfter: 7},
  })) await assert.rejects(get(name), (error) => { for (const [key, value] of Object.entries(want)) assert.equal(error[key], value, `${name}: ${key}`); return error instanceof ApiError && !error.unreachable; });
});
