// The table of jobs with the decision for each, and the full explanation of one.

import { byId, make, onceAFrame, table, write } from "./dom.js";
import { certificate, plural } from "./format.js";
import { ask } from "./server.js";

const MOST_ROWS = 200;

let jobs = new Map();
let open = "";

export const draw = onceAFrame(drawNow);

export function start() {
  byId("job-filter").addEventListener("input", draw);
  byId("job-close").addEventListener("click", close);
  byId("jobs").addEventListener("click", (event) => {
    const job = event.target.closest("button")?.dataset.job;
    if (job) show(job);
  });
}

export function reset(all) {
  jobs = new Map(Object.entries(all));
  draw();
}

export function change({ set = {}, gone = [] }) {
  for (const name of gone) jobs.delete(name);
  for (const [name, job] of Object.entries(set)) jobs.set(name, job);
  draw();
}

export const names = () => [...jobs.keys()].sort();

export function quality(cluster) {
  const proof = cluster.certificate;
  const text = proof
    ? `Certificate of this plan: ${certificate(proof)}, policy ${cluster.policy}.`
    : "No plan yet: the decisions below are those that the controller wrote to the jobs.";
  write(byId("certificate"), cluster.fallback ? `${text} No new plan was made (${cluster.fallback}); this is the last one without its growth.` : text);
}

function drawNow() {
  const wanted = byId("job-filter").value.trim();
  const found = names().filter((name) => name.includes(wanted));
  const body = byId("jobs").tBodies[0];
  const focused = document.activeElement?.dataset?.job;
  const known = new Map([...body.rows].map((row) => [row.dataset.job, row]));
  body.replaceChildren(...found.slice(0, MOST_ROWS).map((name) => fill(known.get(name) ?? row(name), jobs.get(name))));
  if (focused) body.querySelector(`button[data-job="${CSS.escape(focused)}"]`)?.focus();
  byId("jobs-hidden").hidden = found.length <= MOST_ROWS;
  write(byId("jobs-hidden"), `${found.length - MOST_ROWS} more jobs; use the filter.`);
}

function row(name) {
  const button = make("button", { type: "button" }, name);
  const made = make("tr", {}, make("th", { scope: "row" }, button), ...Array.from({ length: 5 }, () => make("td")));
  made.dataset.job = name;
  button.dataset.job = name;
  return made;
}

function fill(made, job) {
  const decision = job.decision;
  const planned = decision ? (decision.admitted ? String(decision.target) : "not admitted") : "-";
  const fixed = [[job.masters, "master"], [job.pservers, "pserver"]].filter(([count]) => count);
  const ready = job.ready === job.trainers ? "" : ` (${job.ready} ready)`;
  const trainers = [`${job.trainers}${ready}`, ...fixed.map(([count, noun]) => plural(count, noun))].join(", ");
  const why = job.problem || (decision ? decision.message || decision.reason : "");
  [job.phase, trainers, planned, `${job.min} to ${job.max}`, why].forEach((text, at) => write(made.cells[at + 1], text));
  return made;
}

async function show(name) {
  open = name;
  byId("job").hidden = false;
  write(byId("job-title"), `Why ${name} has its trainers`);
  byId("job-body").replaceChildren("Computing: a price is confirmed by solving again.");
  byId("job-title").focus();
  const at = name.indexOf("/");
  const query = new URLSearchParams({ namespace: name.slice(0, at), name: name.slice(at + 1) });
  try {
    const report = await ask(`explain?${query}`);
    if (open === name) byId("job-body").replaceChildren(...explained(report));
  } catch (error) {
    if (open === name) byId("job-body").replaceChildren(make("p", { class: "error" }, error.message));
  }
}

function explained(report) {
  const parts = [make("p", {}, `${report.current} now, ${report.target} planned (min ${report.min}, max ${report.max}), ${report.reason}`),
    make("pre", {}, report.account)];
  if (report.fairShare !== null) parts.push(make("p", {}, `Fair share under ${report.policy}: ${report.fairShare.toFixed(2)} trainers.`));
  if (report.nodes.length) {
    const rows = report.nodes.map((one) => [one.node, one.pool, one.stay, one.come, one.go]);
    parts.push(table("Trainers by node", ["Node", "Pool", "Stay", "Start", "Deleted"], rows));
  }
  const full = report.full.map((one) => `${one.resource} is full on ${one.where}: at most ${one.free} free, a trainer requests ${one.asked}`);
  const held = report.holders.map((one) => `${one.namespace}/${one.name} holds ${plural(one.trainers, "trainer")} above its minimum there`);
  parts.push(...listed("What is full", [...full, ...held]), ...listed("What would help", report.remedies));
  return parts;
}

function listed(title, texts) {
  return texts.length ? [make("h4", {}, title), make("ul", {}, ...texts.map((text) => make("li", {}, text)))] : [];
}

function close() {
  byId("job").hidden = true;
  byId("jobs").querySelector(`button[data-job="${CSS.escape(open)}"]`)?.focus();
  open = "";
}
