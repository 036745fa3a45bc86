// Trainers of each job over time, stacked on serving pods, as steps; the same figures as a table.

import { byId, make, onceAFrame, swatch, table } from "./dom.js";
import { clock, colourOf, plural } from "./format.js";

const WIDTH = 900;
const HEIGHT = 260;
const MARGIN = { left: 40, right: 12, top: 12, bottom: 24 };
const MOST_JOBS = 7;
const MOST_SAMPLES = 720;
const MOST_ROWS = 40;
const SVG = "http://www.w3.org/2000/svg";

let samples = [];

export const draw = onceAFrame(drawNow);

export function start() {
  byId("history-table").addEventListener("toggle", draw);
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

// The largest jobs each get a band; the rest share one.
function bands() {
  const peaks = new Map();
  for (const sample of samples) {
    for (const [job, count] of Object.entries(sample.trainers)) peaks.set(job, Math.max(peaks.get(job) ?? 0, count));
  }
  const sorted = [...peaks].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([job]) => job);
  const [shown, rest] = [sorted.slice(0, MOST_JOBS).sort(), sorted.slice(MOST_JOBS)];
  const found = [{ name: "serving pods", kind: "serving", of: (sample) => sample.serving }];
  for (const job of shown) found.push({ name: `trainers of ${job}`, kind: colourOf(job), of: (sample) => sample.trainers[job] ?? 0 });
  const others = (sample) => rest.reduce((sum, job) => sum + (sample.trainers[job] ?? 0), sample.others);
  if (samples.some((sample) => others(sample) > 0)) found.push({ name: "trainers of other jobs", kind: "others", of: others });
  return found;
}

function drawNow() {
  if (!samples.length) return;
  const found = bands();
  const last = samples.at(-1);
  byId("chart").replaceChildren(picture(found));
  byId("chart-legend").replaceChildren(...found.map((band) =>
    swatch(band.kind === "others" ? "other" : band.kind, `${band.name}: ${band.of(last)}`)));
  if (byId("history-table").open) {
    const rows = samples.slice(-MOST_ROWS).reverse().map((sample) => [clock(sample.time), ...found.map((band) => band.of(sample))]);
    byId("history-rows").replaceChildren(table("Pods over time, the newest first", ["Time", ...found.map((band) => band.name)], rows));
  }
}

function picture(found) {
  const begin = samples[0].time;
  const end = Math.max(samples.at(-1).time, begin + 10);
  const totals = samples.map((sample) => found.reduce((sum, band) => sum + band.of(sample), 0));
  const top = niceTop(Math.max(1, ...totals));
  const x = (time) => MARGIN.left + (time - begin) / (end - begin) * (WIDTH - MARGIN.left - MARGIN.right);
  const y = (count) => HEIGHT - MARGIN.bottom - count / top * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const made = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary(found, begin, end) });
  for (const part of [0, 0.5, 1]) {
    const height = y(top * part);
    made.append(node("line", { class: "rule", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: height, y2: height }));
    made.append(label(MARGIN.left - 6, height + 4, "end", String(top * part)));
  }
  const floor = samples.map(() => 0);
  for (const band of found) made.append(area(band, floor, x, y, end));
  made.append(label(MARGIN.left, HEIGHT - 6, "start", clock(begin)));
  made.append(label(WIDTH - MARGIN.right, HEIGHT - 6, "end", clock(end)));
  return made;
}

// A band as steps: a count holds until the next sample. `floor` is raised by it.
function area(band, floor, x, y, end) {
  const upper = [];
  const lower = [];
  samples.forEach((sample, index) => {
    const next = index + 1 < samples.length ? samples[index + 1].time : end;
    const ceiling = floor[index] + band.of(sample);
    for (const time of [sample.time, next]) {
      upper.push(`${x(time).toFixed(1)},${y(ceiling).toFixed(1)}`);
      lower.unshift(`${x(time).toFixed(1)},${y(floor[index]).toFixed(1)}`);
    }
    floor[index] = ceiling;
  });
  return node("path", { class: band.kind, d: `M${[...upper, ...lower].join("L")}Z` });
}

function summary(found, begin, end) {
  const ranges = found.map((band) => {
    const counts = samples.map(band.of);
    return `${band.name} between ${Math.min(...counts)} and ${Math.max(...counts)}, now ${counts.at(-1)}`;
  });
  return `Pods over ${plural(Math.max(1, Math.round((end - begin) / 60)), "minute")}: ${ranges.join("; ")}`;
}

function niceTop(most) {
  const step = 10 ** Math.floor(Math.log10(most));
  return (step === 1 ? [2, 4, 6, 8, 10] : [1, 2, 3, 4, 5, 6, 8, 10]).map((times) => times * step).find((value) => value >= most);
}

function label(x, y, anchor, text) {
  const made = node("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

function node(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
