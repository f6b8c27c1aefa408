import {html, render} from "./vendor-htm-preact.js";

const root = new URL("../../../../", import.meta.url);

async function user() {
  const response = await fetch(new URL("apis/authentication.k8s.io/v1/selfsubjectreviews", root), {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify({apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview"}),
  });
  const answer = await response.json();
  return response.ok ? answer.status.userInfo.username : answer.message;
}

render(html`<h1>Fleet</h1><p role="status">${await user()}</p>`, document.getElementById("app"));
