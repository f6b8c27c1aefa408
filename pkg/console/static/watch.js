// Watches of the API: a response whose lines are events.

import {ApiError, backoff, delay, get, send} from "./api.js";

// maxLine bounds an event in characters.
const maxLine = 8 << 20;
// timeoutSeconds is the time after which the server ends a watch. A watch that it does not end is on a dead connection.
const timeoutSeconds = 120;
const grace = 15;

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      if (rest.length > maxLine) throw new ApiError(0, "An event of the watch is too large.");
      for (const part of parts) if (part) yield part;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// watch calls onEvent for each change until the signal aborts. It calls onStart whenever it starts or continues, because
// changes may have been missed and permissions may have changed. It returns an error if the watch cannot be served, for
// example because it selects too many objects or is forbidden.
export async function watch(where, query, {onEvent, onStart, signal}) {
  let version = "";
  for (let failures = 0; ;) {
    try {
      if (!version) {
        const list = await get(where, {query: {...query, limit: 1}, signal});
        version = list.metadata?.resourceVersion ?? "";
      }
      const response = await send("GET", where, {
        signal: AbortSignal.any([signal, AbortSignal.timeout((timeoutSeconds + grace) * 1000)]),
        query: {...query, watch: "1", allowWatchBookmarks: "true", timeoutSeconds, resourceVersion: version},
      });
      onStart();
      for await (const line of lines(response.body)) {
        const event = JSON.parse(line);
        if (event.type === "ERROR") throw new ApiError(event.object?.code ?? 0, event.object?.message ?? "", event.object ?? {});
        failures = 0;
        version = event.object?.metadata?.resourceVersion ?? version;
        if (event.type !== "BOOKMARK") onEvent(event);
      }
      // The server ends each watch after its timeout. It also ends it if permissions change.
      await delay(200, signal);
    } catch (error) {
      if (signal.aborted) return null;
      if (error.code === 410 || error.code === 504) version = "";
      else if (error.code >= 400 && error.code < 500 && error.code !== 401) return error;
      await delay(backoff(failures++), signal).catch(() => {});
      if (signal.aborted) return null;
    }
  }
}
