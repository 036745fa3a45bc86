// What the cluster has and uses over time, as steps; who waits; and a mark for each plan that changed something.

import { byId, make, onceAFrame, svg, swatch, table } from "./dom.js";
import { amount, bare, clock, number, plural, unit } from "./format.js";

const WIDTH = 900;
const HEIGHT = 240;
const STRIP = { top: 254, bottom: 290 };
const MARGIN = { left: 48, right: 12, top: 12, bottom: 6 };
const MOST_SAMPLES = 720;
const MOST_ROWS = 40;
const MOST_LINES = 6;
const BANDS = [["other", "other pods"], ["serving", "serving"], ["jobs", "jobs"]];

let samples = [];
let marks = [];
let resource = "cpu";

export const draw = onceAFrame(drawNow);

export function start() {
  byId("history-table").addEventListener("toggle", draw);
  byId("resource").addEventListener("change", (event) => { show(event.target.value); });
  const row = byId("marks");
  row.addEventListener("focusin", (event) => tell(event.target));
  row.addEventListener("pointerover", (event) => tell(event.target));
  row.addEventListener("pointerleave", () => { if (!row.contains(document.activeElement)) hide(); });
  row.addEventListener("focusout", hide);
  row.addEventListener("keydown", move);
}

export function show(name) {
  resource = name;
  draw();
}

export function reset(all) {
  samples = all;
  draw();
}

export function add(sample) {
  if (samples.length && sample.time <= samples.at(-1).time) return;
  samples.push(sample);
  if (samples.length > MOST_SAMPLES) samples = samples.filter((_, index) => index % 2 === 1);
  draw();
}

// One mark for each plan: what it changed for which jobs. `entries` are all decisions, the oldest first.
export function decided(entries) {
  const plans = new Map();
  for (const entry of entries) plans.set(entry.time, [...(plans.get(entry.time) ?? []), entry]);
  marks = [...plans].map(([time, changes]) => ({ time, changes, evicts: changes.some((one) => one.victimCount) }));
  draw();
}

// From when until when the chart goes, in seconds since the epoch.
export function span() {
  if (!samples.length) return [0, 10];
  return [samples[0].time, Math.max(samples.at(-1).time, samples[0].time + 10)];
}

const has = (sample) => sample.capacity[resource] ?? 0;
const uses = (kind) => (sample) => sample.used[kind][resource] ?? 0;
const bands = () => BANDS.map(([kind, name]) => ({ kind, name, of: uses(kind) }));

function drawNow() {
  if (!samples.length) return;
  const found = bands();
  const last = samples.at(-1);
  byId("chart").replaceChildren(picture(found));
  byId("chart-legend").replaceChildren(
    swatch("capacity", `capacity: ${amount(resource, has(last))}`),
    ...found.map((band) => swatch(band.kind, `${band.name}: ${amount(resource, band.of(last))}`)),
    swatch("waiting", `waiting: ${plural(last.waiting, "serving pod")}, ${plural(last.pending, "pod")} of jobs`));
  drawMarks();
  if (byId("history-table").open) {
    const rows = samples.slice(-MOST_ROWS).reverse().map((sample) =>
      [clock(sample.time), bare(resource, has(sample)), ...found.map((band) => bare(resource, band.of(sample))), sample.waiting, sample.pending]);
    const columns = ["Time", "Capacity", ...found.map((band) => `Used by ${band.name}`), "Waiting serving pods", "Waiting pods of jobs"];
    byId("history-rows").replaceChildren(table(`Capacity and use in ${unit(resource)}, the newest first`, columns, rows));
  }
}

function scales(top) {
  const [begin, end] = span();
  const x = (time) => MARGIN.left + (time - begin) / (end - begin) * (WIDTH - MARGIN.left - MARGIN.right);
  const y = (value) => HEIGHT - MARGIN.bottom - value / top * (HEIGHT - MARGIN.top - MARGIN.bottom);
  return { begin, end, x, y };
}

function picture(found) {
  const totals = samples.map((sample) => Math.max(has(sample), found.reduce((sum, band) => sum + band.of(sample), 0)));
  const shown = Number(bare(resource, Math.max(...totals))) || 1;
  const top = niceTop(shown) / shown * Math.max(1, ...totals);
  const { begin, end, x, y } = scales(top);
  const made = svg("svg", { viewBox: `0 0 ${WIDTH} ${STRIP.bottom + 20}`, role: "img", "aria-label": summary(found, begin, end) });
  for (const part of [0, 0.5, 1]) {
    const height = y(top * part);
    made.append(svg("line", { class: "rule", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: height, y2: height }));
    made.append(label(MARGIN.left - 6, height + 4, "end", number(niceTop(shown) * part)));
  }
  const floor = samples.map(() => 0);
  for (const band of found) {
    made.append(area(band.kind, floor, samples.map((sample, at) => floor[at] + band.of(sample)), x, y, end));
    samples.forEach((sample, at) => { floor[at] += band.of(sample); });
  }
  made.append(svg("path", { class: "capacity", d: steps(samples.map(has), x, y, end) }));
  const most = Math.max(1, ...samples.map((sample) => sample.waiting + sample.pending));
  const low = (value) => STRIP.bottom - value / most * (STRIP.bottom - STRIP.top);
  made.append(svg("line", { class: "rule", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: STRIP.bottom, y2: STRIP.bottom }));
  made.append(area("waiting", samples.map(() => 0), samples.map((sample) => sample.waiting + sample.pending), x, low, end));
  made.append(label(MARGIN.left - 6, STRIP.top + 10, "end", String(most)));
  made.append(label(MARGIN.left - 6, STRIP.bottom, "end", "wait"));
  made.append(label(MARGIN.left, STRIP.bottom + 16, "start", clock(begin)));
  made.append(label(WIDTH - MARGIN.right, STRIP.bottom + 16, "end", clock(end)));
  return made;
}

// The corners of steps: a value holds until the next sample.
function corners(values, x, y, end) {
  return values.flatMap((value, at) => {
    const next = at + 1 < samples.length ? samples[at + 1].time : end;
    return [samples[at].time, next].map((time) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`);
  });
}

const steps = (values, x, y, end) => `M${corners(values, x, y, end).join("L")}`;

function area(kind, lower, upper, x, y, end) {
  const outline = [...corners(upper, x, y, end), ...corners(lower, x, y, end).reverse()];
  return svg("path", { class: kind, d: `M${outline.join("L")}Z` });
}

function summary(found, begin, end) {
  const range = (name, of) => {
    const values = samples.map(of);
    const [least, most, now] = [Math.min(...values), Math.max(...values), values.at(-1)].map((value) => bare(resource, value));
    return `${name} between ${least} and ${most}, now ${now}`;
  };
  const ranges = [range("capacity", has), ...found.map((band) => range(`used by ${band.name}`, band.of))];
  const waiting = samples.map((sample) => sample.waiting + sample.pending);
  return `${unit(resource)} over ${plural(Math.max(1, Math.round((end - begin) / 60)), "minute")}: ${ranges.join("; ")}; `
    + `at most ${plural(Math.max(...waiting), "pod")} waited, now ${waiting.at(-1)}`;
}

function niceTop(most) {
  const step = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((times) => times * step).find((value) => value >= most * 0.999999);
}

function label(x, y, anchor, text) {
  const made = svg("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

// --- Marks: buttons above the chart; arrow keys move between them, and what one says is read out.

function drawMarks() {
  const { begin, end, x } = scales(1);
  const seen = marks.filter((mark) => mark.time >= begin && mark.time <= end);
  const row = byId("marks");
  const focused = row.contains(document.activeElement) ? document.activeElement.dataset.time : "";
  row.replaceChildren(...seen.map((mark) => {
    const button = make("button", { type: "button", class: mark.evicts ? "mark evicts" : "mark", tabindex: "-1", "aria-label": text(mark).join(". ") });
    button.dataset.time = String(mark.time);
    button.style.left = `${(x(mark.time) / WIDTH * 100).toFixed(2)}%`;
    return button;
  }));
  const chosen = focused ? row.querySelector(`[data-time="${focused}"]`) : null;
  (chosen ?? row.lastElementChild)?.setAttribute("tabindex", "0");
  chosen?.focus();
  byId("marks-hint").hidden = !seen.length;
}

// A line for each job: from how many to how many trainers, who ended for whom, and why.
function text(mark) {
  const lines = mark.changes.slice(0, MOST_LINES).map((one) => {
    const change = one.admitted ? `${one.job} ${one.current} to ${one.target} trainers` : `${one.job} not admitted`;
    const whom = one.for.length ? ` for ${one.for.join(", ")}` : "";
    const ended = one.victimCount ? `; ${plural(one.victimCount, "trainer")} deleted${whom} (${one.shrinkReason})` : "";
    return `${change}${ended}: ${one.message || one.reason}`;
  });
  const rest = mark.changes.length - lines.length;
  return [clock(mark.time), ...lines, ...(rest > 0 ? [`and ${plural(rest, "more job")}`] : [])];
}

function tell(button) {
  const mark = marks.find((one) => String(one.time) === button.dataset?.time);
  if (!mark) return;
  const tip = byId("mark");
  tip.replaceChildren(...text(mark).map((line) => make("p", {}, line)));
  tip.hidden = false;
  tip.style.left = `${Math.min(60, parseFloat(button.style.left))}%`;
}

function hide() {
  byId("mark").hidden = true;
}

function move(event) {
  const all = [...byId("marks").children];
  const at = all.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
  if (event.key === "Escape") hide();
  if (to === undefined || !all[to]) return;
  event.preventDefault();
  all[at]?.setAttribute("tabindex", "-1");
  all[to].setAttribute("tabindex", "0");
  all[to].focus();
}
