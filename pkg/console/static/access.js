// The view of access: can I, who can, everything about one subject, and approvals.

import {ask, groups} from "./api.js";
import {Approvals} from "./approvals.js";
import {go, link} from "./router.js";
import {referenceText, ruleText, subjectText} from "./rules.js";
import {number, operands, plural, shell} from "./text.js";
import {Table, arrows} from "./table.js";
import {Command, Loading, Problem, State, Text, html, label, maxCell, useEffect, useRequest, useState} from "./view.js";

const tabs = [["can-i", "Can I"], ["who-can", "Who can"], ["subject", "One subject"], ["approvals", "Approvals"]];
const verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve"];
const pageSize = 100;
const shownClusters = 5;

// attributesOf returns the request that the form describes.
function attributesOf({verb, resource, namespace, name}) {
  if (resource.startsWith("/")) return {nonResourceAttributes: {verb, path: resource}};
  const [whole, subresource] = resource.split("/", 2);
  const [plural, group] = whole.split(/\.(.*)/s);
  return {resourceAttributes: {verb, resource: plural, group: group || undefined, subresource, namespace: namespace || undefined, name: name || undefined}};
}

const words = (text) => (text ?? "").split(/[\s,]+/).filter(Boolean);

// groupsOf returns the groups of a form. Names of groups contain commas and spaces, so each line is a group.
export const groupsOf = ({groups: text}) => (text ?? "").split("\n").map((line) => line.trim()).filter(Boolean);
const groupFlags = (params) => groupsOf(params).map((g) => `--group ${shell(g)}`);

export function labelSelector(text) {
  const matchLabels = {__proto__: null};
  const matchExpressions = [];
  for (const word of words(text)) {
    const [, negative, key, op, value] = /^(!?)([^=!]+)(!=|==?)?(.*)$/s.exec(word) ?? [];
    if (!key) continue;
    if (!op) matchExpressions.push({key, operator: negative ? "DoesNotExist" : "Exists"});
    else if (op === "!=") matchExpressions.push({key, operator: "NotIn", values: [value]});
    else matchLabels[key] = value;
  }
  return {matchLabels, matchExpressions: matchExpressions.length > 0 ? matchExpressions : undefined};
}

export function selectionOf({clusters, sets, selector}) {
  return {
    names: words(clusters).length > 0 ? words(clusters) : undefined,
    clusterSets: words(sets).length > 0 ? words(sets) : undefined,
    labelSelector: words(selector).length > 0 ? labelSelector(selector) : undefined,
  };
}

const selectionFlags = ({clusters, sets, selector}) => [
  ...words(clusters).map((c) => `--cluster ${shell(c)}`), ...words(sets).map((s) => `--clusterset ${shell(s)}`), ...(words(selector).length > 0 ? [`--clusters ${shell(words(selector).join(","))}`] : []),
];

// requestCommand returns a command about the request that the form describes.
export const requestCommand = (command, params, flags) => {
  const {verb, resource, namespace, name} = params;
  return [command, ...(resource.startsWith("/") ? [] : namespace ? [`-n ${shell(namespace)}`] : ["-A"]), ...flags, ...selectionFlags(params), operands([verb, resource, ...(name ? [name] : [])])].join(" ");
};

function Field({name, label, value, onInput, required, hint, listId}) {
  return html`<div class="field"><label for=${`f-${name}`}>${label}</label>
    <input id=${`f-${name}`} name=${name} value=${value ?? ""} required=${required} autocomplete="off" autocapitalize="off" spellcheck=${false} list=${listId}
      aria-describedby=${hint ? `h-${name}` : undefined} onInput=${(e) => onInput(name, e.target.value)} />
    ${hint && html`<p id=${`h-${name}`} class="help">${hint}</p>`}</div>`;
}

function GroupsField({value, onInput}) {
  return html`<div class="field"><label for="f-groups">Groups</label>
    <textarea id="f-groups" name="groups" rows="2" value=${value ?? ""} autocomplete="off" autocapitalize="off" spellcheck=${false} aria-describedby="h-groups" onInput=${(e) => onInput("groups", e.target.value)} />
    <p id="h-groups" class="help">One on each line</p></div>`;
}

// useForm keeps a form, and puts it into the URL when it is sent.
function useForm(view, params) {
  const [values, setValues] = useState(params);
  const key = JSON.stringify(params);
  useEffect(() => setValues(params), [key]);
  const set = (name, value) => setValues((before) => ({...before, [name]: value}));
  const submit = (reload) => (event) => {
    event.preventDefault();
    const next = {...values, ask: "yes"};
    if (link(view, next) === link(view, params)) reload();
    else go(view, next);
  };
  return {values, set, submit};
}

function RequestFields({values, set}) {
  return html`
    <${Field} name="verb" label="Verb" value=${values.verb} onInput=${set} required listId="verbs" />
    <datalist id="verbs">${verbs.map((v) => html`<option key=${v} value=${v} />`)}</datalist>
    <${Field} name="resource" label="Resource" value=${values.resource} onInput=${set} required hint="pods, deployments.apps, pods/log, or a path such as /healthz" />
    <${Field} name="namespace" label="Namespace" value=${values.namespace} onInput=${set} hint="Empty: all namespaces" />
    <${Field} name="name" label="Name" value=${values.name} onInput=${set} hint="Empty: all names" />`;
}

function ClusterFields({values, set}) {
  return html`<fieldset><legend>Clusters</legend>
    <${Field} name="clusters" label="Names" value=${values.clusters} onInput=${set} hint="Empty: all that you may view" />
    <${Field} name="sets" label="Sets" value=${values.sets} onInput=${set} />
    <${Field} name="selector" label="Labels" value=${values.selector} onInput=${set} hint="env=prod" />
  </fieldset>`;
}

// usePages reads a review page by page.
function usePages(asked, key, load) {
  const first = useRequest((signal) => (asked ? load("", signal) : Promise.resolve(undefined)), [key], key);
  // The pages after the first continue its snapshot.
  const [held, setHeld] = useState({});
  const more = held.first === first.data ? held : {};
  const pages = first.data ? [first.data, ...(more.pages ?? [])] : [];
  const next = pages.at(-1)?.continue;
  const loadMore = () => {
    const set = (change) => setHeld((now) => (now.first === first.data ? {...now, ...change} : now));
    setHeld({first: first.data, pages: more.pages, busy: true});
    load(next).then((page) => set({pages: [...(more.pages ?? []), page], busy: false}), (error) => set({error, busy: false}));
  };
  return {pages, error: first.error ?? more.error, loading: first.loading, reload: first.reload, remaining: pages.at(-1)?.remainingItemCount, loadMore: next ? loadMore : undefined, busy: first.loading || more.busy};
}

function More({remaining, loadMore, busy, what}) {
  return loadMore ? html`<p><button type="button" class="row" disabled=${busy} onClick=${loadMore}>Show more ${what}${remaining ? ` (${number(remaining)} left)` : ""}</button></p>` : null;
}

function Chain({binding, role, rule, subject, clusterPermission}) {
  return html`<div class="chain"><${Text} text=${referenceText(binding)} max=${300} /> binds <${Text} text=${subjectText(subject)} max=${300} /> to <${Text} text=${referenceText(role)} max=${300} />
    ${rule && html`, which allows to <${Text} text=${ruleText(rule)} max=${600} />`}${clusterPermission && html`. The ClusterPermission <${Text} text=${clusterPermission} max=${200} /> delivered it`}.</div>`;
}

const decisions = {__proto__: null, Allowed: ["good", "Allowed"], Denied: ["bad", "Denied"], Unknown: ["unknown", "Unknown"]};

function CanI({params}) {
  const {values, set, submit} = useForm("access/can-i", params);
  const asked = params.ask && params.verb && params.resource;
  const key = JSON.stringify(params);
  const of = groupsOf(params);
  const other = params.user || of.length > 0;
  const review = usePages(asked, key, (token, signal) => {
    const spec = {...attributesOf({...params, resource: params.resource}), clusters: selectionOf(params), limit: pageSize, continue: token || undefined};
    return other
      ? ask(`${groups.access}/fleetaccessreviews`, "FleetAccessReview", {...spec, user: params.user || undefined, groups: of.length > 0 ? of : undefined}, {signal})
      : ask(`${groups.access}/selffleetaccessreviews`, "SelfFleetAccessReview", spec, {signal});
  });
  const [status] = review.pages;
  const clusters = review.pages.flatMap((p) => p.clusters ?? []);
  return html`<section aria-labelledby="can-i"><h2 id="can-i">On which clusters is a request allowed?</h2>
    <form class="ask" onSubmit=${submit(review.reload)}>
      <${RequestFields} values=${values} set=${set} />
      <fieldset><legend>Subject</legend>
        <${Field} name="user" label="User" value=${values.user} onInput=${set} hint="Empty: yourself" />
        <${GroupsField} value=${values.groups} onInput=${set} />
      </fieldset>
      <${ClusterFields} values=${values} set=${set} />
      <p><button type="submit" class="primary">Ask</button></p>
    </form>
    <${Problem} error=${review.error} what="the permissions of others" />
    ${asked && !status && review.loading && html`<${Loading} what="the answer" />`}
    ${status && html`<div>
      <p role="status" class="summary">${number(status.allowed ?? 0)} allowed, ${number(status.denied ?? 0)} denied, ${number(status.unknown ?? 0)} unknown</p>
      ${clusters.length === 0 ? html`<p class="note">There is no such cluster, or you may not view it.</p>` : html`<${Table} caption="Answers by cluster" rows=${clusters} keyOf=${(c) => c.cluster} columns=${[
        {name: "cluster", title: "Cluster", render: (c) => html`<${Text} text=${c.cluster} max=${maxCell} />`},
        {name: "decision", title: "Decision", render: (c) => html`<${State} state=${(decisions[c.decision] ?? decisions.Unknown)[0]}>${(decisions[c.decision] ?? decisions.Unknown)[1]}</${State}>`},
        {name: "why", title: "Why", render: (c) => html`<div class="wide">${c.reason && html`<${Text} text=${c.reason} max=${600} />`}${(c.chains ?? []).map((chain, i) => html`<${Chain} key=${i} ...${chain} />`)}</div>`},
      ]} />`}
      <${More} ...${review} what="clusters" />
    </div>`}
    ${asked && html`<${Command} text=${requestCommand("clusteradm auth can-i", params, [...(params.user ? [`--subject ${shell(params.user)}`] : []), ...groupFlags(params)])} />`}
  </section>`;
}

const ways = {
  __proto__: null,
  Bind: "can bind roles", Escalate: "can change roles beyond own permissions", ImpersonateUsers: "can impersonate users", ImpersonateGroups: "can impersonate groups",
  ImpersonateServiceAccounts: "can impersonate ServiceAccounts", CreatePods: "can run Pods as a ServiceAccount", ExecPods: "can run commands in Pods", CreateTokens: "can create tokens of ServiceAccounts",
  ReadSecrets: "can read Secrets, which may contain tokens", ProxyNodes: "can run commands on nodes", ApproveCertificates: "can approve client certificates",
};

function Grant({grant, by}) {
  const names = (grant.clusters ?? []).slice(0, shownClusters);
  const more = (grant.clusterCount ?? names.length) - names.length;
  return html`<li>${by && html`<strong>${by}</strong>: `}<${Chain} ...${grant} />
    <span class="note">On ${names.map((c, i) => html`${i > 0 && ", "}<${Text} text=${c} max=${80} />`)}${more > 0 && ` and ${plural(more, "more cluster")}`}.</span></li>`;
}

function WhoCan({params}) {
  const {values, set, submit} = useForm("access/who-can", params);
  const asked = params.ask && params.verb && params.resource;
  const key = JSON.stringify(params);
  const review = usePages(asked, key, (token, signal) => ask(`${groups.access}/fleetsubjectreviews`, "FleetSubjectReview", {
    ...attributesOf(params), clusters: selectionOf(params), escalations: params.escalations === "yes" || undefined, limit: pageSize, continue: token || undefined,
  }, {signal}));
  const [status] = review.pages;
  const subjects = review.pages.flatMap((p) => p.subjects ?? []);
  const notes = [...(status?.notes ?? []), ...(status?.unknown > 0 ? [`The hub does not know the permissions on ${plural(status.unknown, "cluster")}.`] : []),
    ...(status?.otherAuthorizers?.length > 0 ? [`On ${plural(status.otherAuthorizers.length, "cluster")}, another authorizer may allow other subjects.`] : [])];
  return html`<section aria-labelledby="who-can"><h2 id="who-can">Who is allowed a request?</h2>
    <form class="ask" onSubmit=${submit(review.reload)}>
      <${RequestFields} values=${values} set=${set} />
      <${ClusterFields} values=${values} set=${set} />
      <p class="check"><input id="escalations" type="checkbox" checked=${values.escalations === "yes"} onChange=${(e) => set("escalations", e.target.checked ? "yes" : "")} /> <label for="escalations">Also show who can gain the permission</label></p>
      <p><button type="submit" class="primary">Ask</button></p>
    </form>
    <${Problem} error=${review.error} what="the permissions of others" />
    ${asked && !status && review.loading && html`<${Loading} what="the answer" />`}
    ${status && html`<div>
      <p role="status" class="summary">${plural(status.total ?? subjects.length, "subject")}</p>
      ${notes.length > 0 && html`<ul class="warnings" aria-label="Notes">${notes.map((n) => html`<li key=${n}><${Text} text=${n} max=${400} /></li>`)}</ul>`}
      ${subjects.length > 0 && html`<${Table} caption="Subjects" rows=${subjects} keyOf=${(s) => subjectText(s)} columns=${[
        {name: "subject", title: "Subject", render: (s) => (s.kind === "Group" || s.kind === "User"
          ? html`<a class="row" href=${link("access/subject", {type: s.kind.toLowerCase(), subject: s.name, ask: "yes"})}><${Text} text=${subjectText(s)} max=${maxCell} /></a>` : html`<${Text} text=${subjectText(s)} max=${maxCell} />`)},
        {name: "why", title: "Why", render: (s) => html`<ul class="wide reasons">${s.reason && html`<li><${Text} text=${s.reason} max=${400} /></li>`}
          ${(s.grants ?? []).map((g, i) => html`<${Grant} key=${`g${i}`} grant=${g} />`)}
          ${(s.escalations ?? []).map((g, i) => html`<${Grant} key=${`e${i}`} grant=${g} by=${ways[g.type] ?? g.type} />`)}
          ${s.truncated && html`<li class="note">and more</li>`}</ul>`},
      ]} />`}
      <${More} ...${review} what="subjects" />
    </div>`}
    ${asked && html`<${Command} text=${requestCommand("clusteradm auth who-can", params, params.escalations === "yes" ? ["--escalations"] : [])} />`}
  </section>`;
}

// typeOf returns the kind of the subject. The URL can contain any text.
const typeOf = ({type}) => (type === "group" || type === "serviceaccount" ? type : "user");

// subjectOf returns the subject of a review.
export function subjectOf(params) {
  const {type, subject} = params;
  const more = groupsOf(params);
  const name = subject.trim();
  if (type === "group") return {groups: [name, ...more]};
  if (type !== "serviceaccount") return {user: name, groups: more.length > 0 ? more : undefined};
  const parts = name.split("/");
  if (parts.length === 3) return {serviceAccount: {cluster: parts[0], namespace: parts[1], name: parts[2]}};
  return {user: `system:serviceaccount:${parts.join(":")}`};
}

function Holding({holding}) {
  return html`<li><${Text} text=${referenceText(holding.binding)} max=${300} /> binds <${Text} text=${subjectText(holding.subject)} max=${200} /> to <${Text} text=${referenceText(holding.role)} max=${300} />${holding.missing && ", which does not exist"}${holding.clusterPermission && html`, delivered by the ClusterPermission <${Text} text=${holding.clusterPermission} max=${200} />`}.
    ${holding.rules?.length > 0 && html`<details><summary>${plural(holding.rules.length, "rule")}</summary><ul>${holding.rules.map((r, i) => html`<li key=${i}><${Text} text=${ruleText(r)} max=${1000} /></li>`)}</ul></details>`}
    ${holding.escalations?.length > 0 && html`<p class="note">It ${holding.escalations.map((e, i) => `${i > 0 ? ", " : ""}${ways[e] ?? e}`)}.</p>`}</li>`;
}

function Subject({params}) {
  const {values, set, submit} = useForm("access/subject", params);
  const asked = params.ask && params.subject;
  const key = JSON.stringify(params);
  const review = usePages(asked, key, (token, signal) => ask(`${groups.access}/fleetaccessreviews`, "FleetAccessReview", {...subjectOf(params), clusters: selectionOf(params), limit: pageSize, continue: token || undefined}, {signal}));
  const clusters = review.pages.flatMap((p) => p.clusters ?? []).filter((c) => c.holdings?.length > 0 || c.reason);
  const type = typeOf(values);
  return html`<section aria-labelledby="subject"><h2 id="subject">Everything that a subject holds</h2>
    <form class="ask" onSubmit=${submit(review.reload)}>
      <div class="field"><label for="f-type">Kind</label><select id="f-type" value=${type} onChange=${(e) => set("type", e.target.value)}>
        <option value="user">User</option><option value="group">Group</option><option value="serviceaccount">ServiceAccount</option></select></div>
      <${Field} name="subject" label="Name" value=${values.subject} onInput=${set} required hint=${type === "serviceaccount" ? "CLUSTER/NAMESPACE/NAME, or NAMESPACE/NAME on all clusters" : undefined} />
      ${type === "user" && html`<${GroupsField} value=${values.groups} onInput=${set} />`}
      <${ClusterFields} values=${values} set=${set} />
      <p><button type="submit" class="primary">Ask</button></p>
    </form>
    <${Problem} error=${review.error} what="the permissions of others" />
    ${asked && review.pages.length === 0 && review.loading && html`<${Loading} what="the answer" />`}
    ${review.pages.length > 0 && html`<div>
      <p role="status" class="summary">${clusters.length === 0 ? "It holds nothing on the clusters that you may view." : `Bindings on ${plural(clusters.length, "cluster")}`}</p>
      ${clusters.map((c) => html`<section key=${c.cluster} class="group" aria-label=${label(c.cluster)}><h3><${Text} text=${c.cluster} max=${100} /></h3>
        ${c.reason && html`<p><${State} state="unknown"><${Text} text=${c.reason} max=${600} /></${State}></p>`}
        <ul class="holdings">${(c.holdings ?? []).map((h, i) => html`<${Holding} key=${i} holding=${h} />`)}</ul></section>`)}
      <${More} ...${review} what="clusters" />
    </div>`}
    ${asked && html`<${Command} text=${["clusteradm auth explain", ...(typeOf(params) === "user" ? groupFlags(params) : []), ...selectionFlags(params), operands([typeOf(params), params.subject])].join(" ")} />`}
  </section>`;
}

const views = {__proto__: null, "can-i": CanI, "who-can": WhoCan, subject: Subject, approvals: Approvals};

export function Access({view, params}) {
  const tab = views[view.split("/")[1]] ? view.split("/")[1] : "can-i";
  return html`<div class="access" onKeyDown=${arrows}>
    <h1 tabindex="-1">Access</h1>
    <nav class="tabs" aria-label="Access"><ul>${tabs.map(([name, title]) => html`<li key=${name}><a href=${link(`access/${name}`)} aria-current=${name === tab ? "page" : undefined}>${title}</a></li>`)}</ul></nav>
    <${views[tab]} key=${tab} params=${params} />
  </div>`;
}
