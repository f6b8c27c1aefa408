import {clock, failure, increasing, longest, serve} from "./page.js";
import assert from "node:assert/strict";
import {mock, test} from "node:test";

import {backoff, connection, get, groups} from "../static/api.js";

const extremes = [0, 1 - Number.EPSILON];

test("no delay is longer than 30 seconds, whatever the jitter", (t) => {
  t.after(() => mock.restoreAll());
  for (const random of extremes) {
    mock.method(Math, "random", () => random);
    let before = 0;
    for (let failures = 0; failures < 100; failures++) {
      const delay = backoff(failures);
      assert.ok(delay >= before && delay > 0 && delay <= longest, `backoff(${failures}) = ${delay} ms after ${before} ms, want increasing delays up to ${longest} ms`);
      before = delay;
    }
    assert.ok(before > longest / 2, `the longest delay = ${before} ms, want more than ${longest / 2} ms`);
  }
  const spread = extremes.map((random) => { mock.method(Math, "random", () => random); return backoff(99); });
  assert.ok(spread[1] > 1.2 * spread[0], `the longest delay is between ${spread[0]} and ${spread[1]} ms, want jitter, so that pages do not come back together`);
});

// probes returns the times of the requests that find out whether the hub responds.
const probes = (requests) => requests.filter((r) => r.object?.spec?.output === "Count").map((r) => r.at);

test("the page tries again with increasing delays while the hub is away, and continues when it returns", async (t) => {
  const time = clock(t);
  mock.method(Math, "random", () => extremes[1]);
  let away = true;
  const requests = serve(t, () => { if (away) throw new TypeError("fetch failed"); return {status: {}}; });
  const epoch = connection.epoch;
  await assert.rejects(get("version"), (error) => error.unreachable);
  await time.advance(300_000);
  increasing(probes(requests));
  assert.match(connection.error.message, /cannot be reached/);
  assert.equal(connection.epoch, epoch);
  away = false;
  await time.advance(longest + 100);
  assert.equal(connection.error, null);
  assert.equal(connection.epoch, epoch + 1);
  const {length} = requests;
  await time.advance(60_000);
  assert.equal(requests.length, length, "a connection that works is not probed");
});

test("the delays increase, too, if one API stays unavailable", async (t) => {
  const time = clock(t);
  mock.method(Math, "random", () => extremes[1]);
  const requests = serve(t, ({url}) => (url.includes(groups.works) ? failure(503, {reason: "ServiceUnavailable"}) : {status: {}}));
  const read = () => get(`${groups.works}/manifestworks`).catch(() => {});
  // All views read again when the hub responds again.
  let epoch = connection.epoch;
  t.after(connection.subscribe(() => { if (epoch !== connection.epoch) { epoch = connection.epoch; read(); } }));
  read();
  // The other APIs respond.
  for (let i = 0; i < 100; i++) {
    await time.advance(4000);
    await get("version");
  }
  increasing(probes(requests));
});
