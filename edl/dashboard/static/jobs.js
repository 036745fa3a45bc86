// The table of jobs with the decision for each, those that wait first, and the full explanation of one.

import { span } from "./chart.js";
import { byId, make, onceAFrame, svg, table, write } from "./dom.js";
import { certificate, plural } from "./format.js";
import { ask } from "./server.js";

const MOST_ROWS = 200;
const MOST_STEPS = 60;
const BAND = { width: 140, height: 30 };
const ENDED = ["Succeeded", "Failed"];

let jobs = new Map();
let counts = new Map();
let open = "";
let from = "jobs";

export const draw = onceAFrame(drawNow);

export function start() {
  byId("job-filter").addEventListener("input", draw);
  byId("job-close").addEventListener("click", close);
  for (const list of ["jobs", "waiting-jobs"]) {
    byId(list).addEventListener("click", (event) => {
      const job = event.target.closest("button")?.dataset.job;
      if (job) show(job, list);
    });
  }
}

export function reset(all, steps) {
  jobs = new Map(Object.entries(all));
  counts = new Map(Object.entries(steps));
  draw();
}

export function change({ set = {}, gone = [] }, time) {
  for (const name of gone) {
    jobs.delete(name);
    counts.delete(name);
  }
  for (const [name, job] of Object.entries(set)) {
    jobs.set(name, job);
    note(name, time, job.trainers);
  }
  draw();
}

function note(name, time, count) {
  const steps = counts.get(name) ?? [];
  if (steps.length && steps.at(-1)[1] === count) return;
  steps.push([time, count]);
  counts.set(name, steps.length > MOST_STEPS ? steps.filter((_, at) => at % 2 === 0 || at === steps.length - 1) : steps);
}

const waits = (job) => Boolean(job.decision) && !job.decision.admitted && !ENDED.includes(job.phase);

// Those that wait first, then those that have less than is planned, then the others, then those that have ended.
function rank(name) {
  const job = jobs.get(name);
  if (ENDED.includes(job.phase)) return 3;
  if (waits(job) || job.problem) return 0;
  return job.decision && job.trainers < job.decision.target ? 1 : 2;
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
  const found = names().filter((name) => name.includes(wanted)).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const body = byId("jobs").tBodies[0];
  const focused = document.activeElement?.dataset?.job;
  const known = new Map([...body.rows].map((row) => [row.dataset.job, row]));
  body.replaceChildren(...found.slice(0, MOST_ROWS).map((name) => fill(known.get(name) ?? row(name), jobs.get(name))));
  if (focused) body.querySelector(`button[data-job="${CSS.escape(focused)}"]`)?.focus();
  byId("jobs-hidden").hidden = found.length <= MOST_ROWS;
  write(byId("jobs-hidden"), `${found.length - MOST_ROWS} more jobs; use the filter.`);
  drawWaiting();
}

function drawWaiting() {
  const found = names().filter((name) => waits(jobs.get(name)));
  byId("waiting-jobs").replaceChildren(...found.slice(0, MOST_ROWS).map((name) => {
    const button = make("button", { type: "button" }, name);
    button.dataset.job = name;
    const { message, reason } = jobs.get(name).decision;
    return make("li", {}, "job ", button, `: ${message || reason}`);
  }));
  byId("waiting-none").hidden = found.length > 0 || byId("waiting-pods").children.length > 0;
}

export const refreshWaiting = onceAFrame(drawWaiting);

function row(name) {
  const button = make("button", { type: "button" }, name);
  const made = make("tr", {}, make("th", { scope: "row" }, button), ...Array.from({ length: 6 }, () => make("td")));
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
  made.cells[1].replaceChildren(band(made.dataset.job, job));
  [trainers, planned, `${job.min} to ${job.max}`, job.phase, why].forEach((text, at) => write(made.cells[at + 2], text));
  return made;
}

// The bounds of a job as a band, and its trainers over the time of the chart as steps in it.
function band(name, job) {
  const [begin, end] = span();
  const steps = counts.get(name) ?? [];
  const most = Math.max(1, job.max, ...steps.map(([, count]) => count));
  const x = (time) => Math.max(0, (time - begin) / (end - begin) * BAND.width);
  const y = (count) => BAND.height - 1 - count / most * (BAND.height - 2);
  const corners = steps.flatMap(([time, count], at) => {
    const until = at + 1 < steps.length ? steps[at + 1][0] : Math.max(end, time);
    return [time, until].map((moment) => `${x(moment).toFixed(1)},${y(count).toFixed(1)}`);
  });
  const seen = steps.map(([, count]) => count);
  const text = seen.length ? `between ${Math.min(...seen)} and ${Math.max(...seen)} trainers, now ${job.trainers}` : "no trainers yet";
  return svg("svg", { class: "band", viewBox: `0 0 ${BAND.width} ${BAND.height}`, preserveAspectRatio: "none", role: "img", "aria-label": text },
    svg("rect", { class: "bounds", x: 0, y: y(job.max), width: BAND.width, height: Math.max(1, y(job.min) - y(job.max)) }),
    svg("path", { class: "count", d: corners.length ? `M${corners.join("L")}` : "" }));
}

async function show(name, list) {
  open = name;
  from = list;
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
  byId(from).querySelector(`button[data-job="${CSS.escape(open)}"]`)?.focus();
  open = "";
}
