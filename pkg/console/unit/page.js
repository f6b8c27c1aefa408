// What the modules of the console read from a browser. Tests import this file first.

import assert from "node:assert/strict";
import {mock} from "node:test";

globalThis.location = {hash: ""};
globalThis.document = {hidden: false};
globalThis.addEventListener = () => {};

const settled = setImmediate;
let start = 0;

// clock replaces timers and clocks for a test. advance(ms) moves them in steps, and lets promises settle after each step.
export function clock(t) {
  mock.timers.enable({apis: ["setTimeout", "setInterval", "Date"], now: start});
  mock.method(performance, "now", () => Date.now());
  t.after(() => {
    start = Date.now() + 3_600_000;
    mock.timers.reset();
    mock.restoreAll();
  });
  return {
    advance: async (ms, step = 50) => {
      for (let at = 0; at < ms; at += step) {
        mock.timers.tick(step);
        for (let i = 0; i < 8; i++) await new Promise((resolve) => settled(resolve));
      }
    },
  };
}

// serve answers the requests of the page with respond, which gets the URL and the object in the request. It returns the
// requests, each with its time.
export function serve(t, respond) {
  const requests = [];
  const before = globalThis.fetch;
  t.after(() => { globalThis.fetch = before; });
  globalThis.fetch = async (url, {body, signal} = {}) => {
    signal?.throwIfAborted();
    const request = {url: String(url), query: Object.fromEntries(new URL(url).searchParams), object: body && JSON.parse(body), at: Date.now()};
    requests.push(request);
    const answer = await respond(request);
    return answer instanceof Response ? answer : new Response(JSON.stringify(answer));
  };
  return requests;
}

export const failure = (code, status = {}) => new Response(JSON.stringify(status), {status: code});

// longest is the longest delay in ms of docs/console.md.
export const longest = 30_000;

// increasing fails unless the delays between the times increase up to longest. Timers fire at a step of the clock.
export function increasing(times) {
  const delays = times.slice(1).map((at, i) => at - times[i]);
  assert.ok(delays.length > 10 && delays.at(-1) > 20 * delays[0], `delays = ${delays} ms, want increasing ones`);
  for (const [i, delay] of delays.entries()) assert.ok(delay <= longest + 50 && (i === 0 || delay >= delays[i - 1] - 50), `delays = ${delays} ms, want increasing ones up to ${longest} ms`);
}
