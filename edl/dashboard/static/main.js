// Puts the page together: login, theme, and the stream of changes.

import * as chart from "./chart.js";
import * as decisions from "./decisions.js";
import { byId, make, write } from "./dom.js";
import { amount, clock } from "./format.js";
import * as jobs from "./jobs.js";
import * as nodes from "./nodes.js";
import { Refused, ask, dropToken, follow, hasToken, setToken, takeTokenOfAddress } from "./server.js";
import * as whatif from "./whatif.js";

const THEME = "edl-theme";
const HINTS = {
  token: "edl dashboard printed a token when it started.",
  kubernetes: "A Kubernetes token whose owner may list trainingjobs, pods and nodes in all namespaces. For a service"
    + " account: kubectl create token NAME -n NAMESPACE. It is kept in this tab only, and forgotten when you close it.",
};

let login = "token";
let stream = new AbortController();

const handlers = {
  state(state) {
    byId("content").hidden = false;
    resources(state.cluster.resources ?? []);
    chart.reset(state.history);
    jobs.reset(state.jobs, state.counts);
    cluster(state.cluster);
    nodes.legend(jobs.names());
    nodes.reset(state.nodes);
    decisions.reset(state.decisions);
    problem(state.problem);
  },
  change(change) {
    if (change.jobs) jobs.change(change.jobs, change.time);
    if (change.cluster) {
      resources(change.cluster.resources);
      cluster(change.cluster);
    }
    if (change.jobs) nodes.legend(jobs.names());
    if (change.nodes) nodes.change(change.nodes);
  },
  sample: chart.add,
  decisions: decisions.add,
  problem,
};

function resources(names) {
  nodes.resources(names);
  chart.show(byId("resource").value);
}

function cluster(found) {
  if (!found.serving) return;
  const serving = [`${found.serving.running} running`, `${found.serving.waiting} waiting`];
  if (found.short) serving.push(`${found.short} without a place`);
  const facts = { Nodes: `${found.readyNodes} of ${found.nodes} ready`, Jobs: String(found.jobs), "Serving pods": serving.join(", ") };
  const list = byId("summary");
  if (!list.children.length) {
    list.append(...Object.keys(facts).map((name) => make("div", {}, make("dt", {}, name), make("dd"))));
  }
  Object.values(facts).forEach((text, at) => write(list.children[at].lastElementChild, text));
  byId("nodes-hidden").hidden = !found.hiddenNodes;
  write(byId("nodes-hidden"), `${found.hiddenNodes} more nodes are not shown.`);
  waitingPods(found);
  jobs.quality(found);
}

function waitingPods(found) {
  const all = found.waitingPods.map((pod) => {
    const each = Object.entries(pod.each).map(([name, value]) => amount(name, value)).join(", ");
    return make("li", {}, `serving pod ${pod.name} since ${clock(pod.since)} (${each})${pod.why ? `: ${pod.why}` : ""}`);
  });
  const rest = found.serving.waiting - all.length;
  if (rest > 0) all.push(make("li", {}, `${rest} more serving pods`));
  byId("waiting-pods").replaceChildren(...all);
  jobs.refreshWaiting();
}

function problem(text) {
  byId("problem").hidden = !text;
  write(byId("problem"), text ? `What you see may be old: ${text}` : "");
}

function connection(state, reason) {
  write(byId("status"), state === "live" ? "Live" : `Connecting again: ${reason}`);
}

async function connect() {
  stream.abort();
  stream = new AbortController();
  byId("login").hidden = true;
  byId("logout").hidden = false;
  try {
    await follow(handlers, stream.signal, connection);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    askToLogIn(error.message);
  }
}

function askToLogIn(reason) {
  stream.abort();
  dropToken();
  byId("content").hidden = true;
  byId("logout").hidden = true;
  write(byId("status"), "Not logged in");
  problem("");
  byId("login").hidden = false;
  write(byId("login-hint"), HINTS[login]);
  write(byId("login-error"), reason);
  byId("token").focus();
}

function startLogin() {
  byId("login-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const token = byId("token").value.trim();
    byId("token").value = "";
    if (!token) {
      write(byId("login-error"), "Enter a token.");
      return;
    }
    setToken(token);
    write(byId("login-error"), "");
    connect();
  });
  byId("logout").addEventListener("click", () => {
    dropToken();
    location.reload(); // so that nothing of the cluster stays in the memory of the tab
  });
}

function startTheme() {
  const select = byId("theme");
  select.value = localStorage.getItem(THEME) ?? "";
  const apply = () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
  };
  select.addEventListener("change", () => { localStorage.setItem(THEME, select.value); apply(); });
  apply();
}

startTheme();
startLogin();
for (const part of [nodes, chart, jobs, whatif]) part.start();
takeTokenOfAddress();
for (;;) {
  try {
    ({ login } = await ask("login"));
    break;
  } catch {
    connection("lost", "the server cannot be reached");
    await new Promise((done) => { setTimeout(done, 2_000); });
  }
}
if (hasToken()) connect();
else askToLogIn("");
