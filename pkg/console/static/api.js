// Requests to the API of the hub. Each request is one of the user: the proxy adds the credentials.

// The page is served at <root>apis/<group>/<version>/console/.
export const root = new URL("../../../../", import.meta.url);

export const groups = {
  search: "apis/search.open-cluster-management.io/v1alpha1",
  access: "apis/access.open-cluster-management.io/v1alpha1",
  views: "apis/clusterview.open-cluster-management.io/v1",
  setViews: "apis/clusterview.open-cluster-management.io/v1alpha1",
  clusters: "apis/cluster.open-cluster-management.io/v1",
  register: "apis/register.open-cluster-management.io/v1alpha1",
  works: "apis/work.open-cluster-management.io/v1",
  permissions: "apis/rbac.open-cluster-management.io/v1alpha1",
  authorization: "apis/authorization.k8s.io/v1",
  authentication: "apis/authentication.k8s.io/v1",
};

// ApiError is a failed request. Its code is 0 if the hub cannot be reached.
export class ApiError extends Error {
  constructor(code, message, status = {}, retryAfter = 0) {
    super(message);
    this.code = code;
    this.reason = status.reason ?? "";
    this.causes = status.details?.causes ?? [];
    this.retryAfter = status.details?.retryAfterSeconds || retryAfter;
  }

  get forbidden() { return this.code === 403; }
  get missing() { return this.code === 404; }
  // unreachable reports whether the hub, or the server behind it, does not respond.
  // A server responds with a Status, which has a reason; a proxy without.
  get unreachable() { return this.code === 0 || this.code === 401 || this.code === 503 || (this.code >= 500 && !this.reason); }
}

export const aborted = (error) => error?.name === "AbortError";

// path returns the path of an object. Names can come from clusters, and must not lead to another path: a name that no
// object can have becomes "_", which no object has.
export const path = (group, ...parts) => [group, ...parts.map((part) => (/^\.{0,2}$|[/%]/.test(part) ? "_" : encodeURIComponent(part)))].join("/");

async function failure(response) {
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  const text = await response.text().catch(() => "");
  let status = {};
  try { status = JSON.parse(text) ?? {}; } catch { /* Proxies respond with plain text. */ }
  const message = status.message || words(response.status);
  return new ApiError(response.status, message, status, retryAfter);
}

function words(code) {
  switch (code) {
    case 401: return "The hub does not accept your credentials any more. Log in again, and restart the proxy if it reads the credentials only once.";
    case 403: return "You are not allowed to do this.";
    case 404: return "The hub does not serve this.";
    case 429: return "The hub has too many requests at the moment.";
    default: return `The hub responded with status ${code}.`;
  }
}

async function send(method, where, {query, body, signal, accept} = {}) {
  const url = new URL(where, root);
  for (const [name, value] of Object.entries(query ?? {})) if (value !== undefined && value !== "") url.searchParams.set(name, value);
  const headers = {Accept: accept ?? "application/json"};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method, headers, signal, cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const failed = new ApiError(0, "The hub cannot be reached.");
    connection.lost(failed);
    throw failed;
  }
  if (response.ok) {
    connection.works();
    return response;
  }
  const failed = await failure(response);
  if (failed.unreachable) connection.lost(failed);
  throw failed;
}

// request sends a request and returns the object in the response.
export async function request(method, where, options) {
  const response = await send(method, where, options);
  try {
    return await response.json();
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    const failed = new ApiError(0, "The connection to the hub was interrupted.");
    connection.lost(failed);
    throw failed;
  }
}

export const get = (where, options) => request("GET", where, options);

// ask creates a virtual object, such as a Search, and returns its status.
export async function ask(where, kind, spec, options) {
  const version = where.split("/").slice(1, 3).join("/");
  const object = await request("POST", where, {...options, body: {apiVersion: version, kind, spec}});
  return object.status ?? {};
}

const reviews = new Map();

// may reports whether the user is allowed a request. A failed review counts as no.
export async function may(attributes, signal) {
  const key = JSON.stringify(attributes);
  const known = reviews.get(key);
  if (known && Date.now() - known.at < 30_000) return known.allowed;
  try {
    const status = await ask(`${groups.authorization}/selfsubjectaccessreviews`, "SelfSubjectAccessReview", {resourceAttributes: attributes}, {signal});
    reviews.set(key, {allowed: status.allowed === true, at: Date.now()});
    return status.allowed === true;
  } catch (error) {
    if (aborted(error)) throw error;
    return false;
  }
}

// rows returns the rows of a Table, which contains columns and metadata but no contents. It reads at most pages chunks.
export async function rows(where, {query, signal, pages = 10} = {}) {
  const out = [];
  let token = "";
  for (let i = 0; i < pages; i++) {
    const table = await get(where, {
      signal, query: {limit: 500, ...query, continue: token}, accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    });
    const names = (table.columnDefinitions ?? []).map((c) => c.name);
    for (const row of table.rows ?? []) {
      const cells = {};
      names.forEach((name, at) => { cells[name] = row.cells[at]; });
      out.push({cells, metadata: row.object?.metadata ?? {}});
    }
    token = table.metadata?.continue ?? "";
    if (!token) return {rows: out, more: false};
  }
  return {rows: out, more: true};
}

export function delay(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => { clearTimeout(timer); reject(new DOMException("aborted", "AbortError")); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, {once: true});
  });
}

// calm is the time in ms without an interruption after which the delays are short again.
const calm = 30_000;

// longest is the longest delay in ms, with its jitter.
const longest = 30_000;

// backoff returns the delay before a retry, with jitter.
export const backoff = (failures) => Math.min(longest / 1.25, 500 * 2 ** Math.min(failures, 8)) * (0.75 + Math.random() / 2);

// connection knows whether the hub responds. While it does not, it tries again with increasing delays. Then the number
// epoch changes, and all views read again.
export const connection = {
  error: null, epoch: 0, listeners: new Set(), probing: false, wake: null, failures: 0, ended: -calm,

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  },
  changed() { for (const listener of [...this.listeners]) listener(); },
  lost(error) {
    const before = this.error?.message;
    this.error = error;
    if (before !== error.message) this.changed();
    if (!this.probing) this.probe();
  },
  // works is called for each successful request. Another API may still be unavailable, so only a probe ends the state.
  works() { this.wake?.abort(); },
  async probe() {
    this.probing = true;
    // If one API stays unavailable, each probe succeeds and the state begins again at once. Then nothing shortens the delay.
    const again = performance.now() - this.ended < calm;
    if (!again) this.failures = 0;
    for (;;) {
      const after = Math.min(5, this.error.retryAfter) * 1000;
      this.wake = again || after > 0 ? null : new AbortController();
      await delay(Math.max(backoff(this.failures++), after), this.wake?.signal).catch(() => {});
      this.wake = null;
      try {
        await ask(`${groups.search}/searches`, "Search", {output: "Count", query: "kind:Cluster"});
        break;
      } catch (error) {
        // Another refusal is the response of a server.
        if (!error.unreachable) break;
      }
    }
    this.probing = false;
    this.ended = performance.now();
    this.error = null;
    this.epoch++;
    this.changed();
  },
};

export {send};
