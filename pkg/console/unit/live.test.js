import {clock, failure, increasing, serve} from "./page.js";
import assert from "node:assert/strict";
import {mock, test} from "node:test";

import {follow} from "../static/live.js";

// following follows a query and counts its searches and its changes.
function following(t, took = 0) {
  const seen = {searches: [], changes: [], state: ""};
  const end = follow({
    query: "kind:Pod", kind: "", shows: (uid) => uid === "c1/a", onChanges: (changes) => seen.changes.push(...changes), onState: (state) => { seen.state = state; },
    refresh: async () => { seen.searches.push(Date.now()); await new Promise((resolve) => { setTimeout(resolve, took); }); },
  });
  t.after(end);
  return seen;
}

const encoder = new TextEncoder();
const event = (type, name) => encoder.encode(`${JSON.stringify({type, object: {metadata: {namespace: "c1", name, resourceVersion: "2"}}})}\n`);

// watched serves a watch, and returns a function that sends an event.
function watched(t) {
  let open;
  serve(t, ({query}) => (query.watch ? new Response(new ReadableStream({start: (controller) => { open = controller; }})) : {metadata: {resourceVersion: "1"}}));
  return (type, name) => open.enqueue(event(type, name));
}

test("live updates search at most once a second", async (t) => {
  const time = clock(t);
  const send = watched(t);
  const seen = following(t);
  await time.advance(3000);
  assert.equal(seen.state, "watching");
  const before = seen.searches.length;
  for (let i = 0; i < 100; i++) {
    send("MODIFIED", i % 2 ? "a" : "b");
    await time.advance(100);
  }
  const searches = seen.searches.length - before;
  assert.ok(searches >= 7 && searches <= 10, `searches in 10 s with 10 changes a second = ${searches}, want at most 10, and live updates`);
  for (const [i, at] of seen.searches.entries()) if (i > 0) assert.ok(at - seen.searches[i - 1] >= 1000, `searches at ${seen.searches} ms`);
  assert.ok(seen.changes.length > 0 && seen.changes.every(([uid]) => uid === "c1/a"), `changes = ${JSON.stringify(seen.changes)}, want those of shown resources`);
  send("DELETED", "a");
  await time.advance(300);
  assert.deepEqual(seen.changes.at(-1), ["c1/a", null], "a deleted resource disappears at once");
});

test("slow searches are rarer, and a hidden page does not search", async (t) => {
  const time = clock(t);
  const send = watched(t);
  const seen = following(t, 1000);
  t.after(() => { document.hidden = false; });
  for (let i = 0; i < 300; i++) {
    if (seen.state) send("MODIFIED", "b");
    await time.advance(100);
  }
  assert.ok(seen.searches.length >= 4 && seen.searches.length <= 6, `searches of 1 s in 30 s = ${seen.searches.length}, want at least 5 s between them`);
  document.hidden = true;
  const before = seen.searches.length;
  send("MODIFIED", "b");
  await time.advance(10_000);
  assert.equal(seen.searches.length, before);
});

test("without a watch, the page searches every 10 seconds", async (t) => {
  const time = clock(t);
  serve(t, () => failure(400, {reason: "BadRequest", message: "the watch selects too much"}));
  const seen = following(t);
  await time.advance(1000 + 60_500);
  assert.equal(seen.state, "polling");
  assert.ok(seen.searches.length >= 6 && seen.searches.length <= 7, `searches in a minute = ${seen.searches.length}, want 6`);
  for (const [i, at] of seen.searches.entries()) if (i > 0) assert.ok(at - seen.searches[i - 1] === 10_000, `searches at ${seen.searches} ms`);
});

test("a watch that fails starts again with increasing delays of up to 30 seconds", async (t) => {
  const time = clock(t);
  mock.method(Math, "random", () => 1 - Number.EPSILON);
  // A refusal with a reason comes from a server, so the connection is not probed.
  const requests = serve(t, () => failure(500, {reason: "InternalError"}));
  following(t);
  await time.advance(300_000);
  increasing(requests.map((r) => r.at));
});
