// The last decisions with explanation and certificate; new ones are read out politely, a few seconds apart.

import * as chart from "./chart.js";
import { byId, make } from "./dom.js";
import { certificate, clock } from "./format.js";

const MOST = 200;
const PAUSE_MS = 4_000;

let newest = 0;
let entries = [];
let waiting = [];
let isReading = false;

export function reset(all) {
  newest = 0;
  entries = [];
  byId("decisions").replaceChildren();
  take(all);
}

export function add(found) {
  waiting.push(...take(found));
  readOut();
}

function take(found) {
  const fresh = found.filter((entry) => entry.id > newest);
  entries = [...entries, ...fresh].slice(-MOST);
  chart.decided(entries);
  const list = byId("decisions");
  for (const entry of fresh) {
    newest = entry.id;
    list.prepend(item(entry));
  }
  while (list.children.length > MOST) list.lastElementChild.remove();
  byId("decisions-none").hidden = list.children.length > 0;
  return fresh;
}

function item(entry) {
  const time = make("time", { datetime: new Date(entry.time * 1000).toISOString() }, clock(entry.time));
  const what = entry.admitted ? `${entry.current} to ${entry.target} trainers` : "not admitted";
  const more = make("details", {}, make("summary", {}, "Account and certificate"),
    make("pre", {}, entry.account || entry.message), make("p", {}, `Certificate: ${certificate(entry.certificate)}`));
  if (entry.victimCount) {
    const whom = entry.for.length ? `, for ${entry.for.join(", ")}` : "";
    more.append(make("p", {}, `Deleted: ${listed(entry.victims, entry.victimCount)} (${entry.shrinkReason}${whom})`));
  }
  if (entry.moves.length) more.append(make("p", {}, `Moved: ${entry.moves.join(", ")}`));
  return make("li", {}, time, " ", make("strong", {}, entry.job), `: ${what} (${entry.reason}). ${entry.message}`, more);
}

const listed = (names, count) => `${names.join(", ")}${count > names.length ? ` and ${count - names.length} more` : ""}`;

function readOut() {
  if (isReading || !waiting.length) return;
  const [first, ...rest] = waiting;
  waiting = [];
  const more = rest.length ? `, and ${rest.length} more decisions` : "";
  byId("announcer").textContent = `${first.job}: ${first.message || first.reason}${more}`;
  isReading = true;
  setTimeout(() => { isReading = false; readOut(); }, PAUSE_MS);
}
