// Nodes with their pods as blocks. Only the tiles of nodes that changed are drawn again.

import { byId, make, onceAFrame, swatch, table, write } from "./dom.js";
import { amount, bare, colourOf, plural, unit } from "./format.js";
import { ask } from "./server.js";

const DENSE = 200;
const MOST_SINGLE = 64;
const KINDS = [["serving", "serving"], ["pserver", "master or pserver"], ["other", "other pods"], ["free", "free"]];

const tiles = new Map();
let nodes = new Map();
let resource = "cpu";
let current = "";
let open = "";

const updateTable = onceAFrame(drawTable);

export function start() {
  const grid = byId("nodes");
  grid.addEventListener("keydown", move);
  grid.addEventListener("focusin", (event) => choose(event.target.closest(".node")));
  grid.addEventListener("click", (event) => show(event.target.closest(".node")?.dataset.name));
  byId("resource").addEventListener("change", (event) => {
    resource = event.target.value;
    for (const [name, tile] of tiles) draw(tile, name, nodes.get(name));
    updateTable();
  });
  byId("node-filter").addEventListener("input", filter);
  byId("nodes-table").addEventListener("toggle", drawTable);
  byId("node-close").addEventListener("click", close);
}

export function reset(all) {
  nodes = new Map(Object.entries(all).sort(([a], [b]) => (a < b ? -1 : 1)));
  tiles.clear();
  byId("nodes").replaceChildren(...[...nodes].map(([name, node]) => tileOf(name, node)));
  after();
}

export function change({ set = {}, gone = [] }) {
  for (const name of gone) {
    nodes.delete(name);
    tiles.get(name)?.remove();
    tiles.delete(name);
  }
  const added = Object.keys(set).some((name) => !nodes.has(name));
  for (const [name, node] of Object.entries(set)) nodes.set(name, node);
  if (added) nodes = new Map([...nodes].sort(([a], [b]) => (a < b ? -1 : 1)));
  for (const name of added ? nodes.keys() : Object.keys(set)) {
    const tile = tiles.get(name);
    if (!tile) insert(name);
    else if (name in set) draw(tile, name, set[name]);
  }
  if (open && (open in set || gone.includes(open))) load(open);
  after();
}

export function resources(names) {
  const select = byId("resource");
  if ([...select.options].map((option) => option.value).join() === names.join()) return;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, unit(name))));
  if (!names.includes(resource)) resource = names[0] ?? "cpu";
  select.value = resource;
}

export function legend(jobs) {
  const kinds = KINDS.map(([kind, name]) => swatch(kind, name));
  const named = jobs.slice(0, 8).map((job) => swatch(colourOf(job), `trainers of ${job}`));
  byId("legend").replaceChildren(...kinds, ...named);
}

function after() {
  byId("nodes").classList.toggle("dense", nodes.size > DENSE);
  if (!nodes.has(current)) choose(byId("nodes").querySelector(".node"));
  filter();
  updateTable();
}

function insert(name) {
  const names = [...nodes.keys()];
  const next = names.slice(names.indexOf(name) + 1).find((other) => tiles.has(other));
  byId("nodes").insertBefore(tileOf(name, nodes.get(name)), next ? tiles.get(next) : null);
}

function tileOf(name, node) {
  const tile = make("button", { type: "button", class: "node", tabindex: name === current ? "0" : "-1" },
    make("span", { class: "name" }, name), make("span", { class: "bar" }), make("span", { class: "left" }));
  tile.dataset.name = name;
  tiles.set(name, tile);
  draw(tile, name, node);
  return tile;
}

function draw(tile, name, node) {
  const has = node.has[resource] ?? 0;
  const free = node.free[resource] ?? 0;
  tile.dataset.state = node.state;
  const blocks = node.blocks.flatMap((block) => drawn(block, has));
  tile.querySelector(".bar").replaceChildren(...blocks);
  write(tile.querySelector(".left"), `${bare(resource, free)} of ${amount(resource, has)} free`);
  tile.setAttribute("aria-label", `node ${name}: ${describe(node)}; ${amount(resource, free)} of ${bare(resource, has)} free`);
}

// One block for each pod; on a large cluster, or for many equal pods, one for all of them.
function drawn(block, has) {
  const share = has > 0 ? (block.each[resource] ?? 0) / has * 100 : 0;
  if (share <= 0) return [];
  const kind = block.kind === "trainer" ? colourOf(block.job) : block.kind;
  const single = nodes.size <= DENSE && block.n <= MOST_SINGLE;
  return Array.from({ length: single ? block.n : 1 }, () => {
    const made = make("span", { class: `block ${kind}${block.leaving ? " leaving" : ""}` });
    made.style.width = `${single ? share : share * block.n}%`;
    return made;
  });
}

function describe(node) {
  const parts = node.blocks.map((block) => {
    const what = block.kind === "serving" || block.kind === "other" ? `${block.kind} pod` : `${block.kind} of ${block.job}`;
    return `${block.n} ${what}${block.leaving ? " being deleted" : ""}`;
  });
  return [node.state, ...parts].join(", ");
}

function choose(tile) {
  if (!tile) return;
  tiles.get(current)?.setAttribute("tabindex", "-1");
  current = tile.dataset.name;
  tile.setAttribute("tabindex", "0");
}

function move(event) {
  const shown = [...tiles.values()].filter((tile) => !tile.hidden);
  shown.sort((a, b) => (a.dataset.name < b.dataset.name ? -1 : 1));
  const at = shown.indexOf(event.target);
  if (at < 0) return;
  const top = shown[0].offsetTop;
  const columns = Math.max(1, shown.filter((tile) => tile.offsetTop === top).length);
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: shown.length - 1 - at };
  if (!(event.key in steps)) return;
  event.preventDefault();
  shown[Math.min(shown.length - 1, Math.max(0, at + steps[event.key]))].focus();
}

function filter() {
  const wanted = byId("node-filter").value.trim();
  for (const [name, tile] of tiles) tile.hidden = !name.includes(wanted);
}

async function show(name) {
  if (!name) return;
  open = name;
  byId("node").hidden = false;
  write(byId("node-title"), `Pods of node ${name}`);
  byId("node-title").focus();
  await load(name);
}

async function load(name) {
  try {
    const { pods } = await ask(`node?name=${encodeURIComponent(name)}`);
    if (open !== name) return;
    const rows = pods.map((pod) => [`${pod.namespace}/${pod.name}`, pod.kind, pod.phase, requests(pod.each)]);
    const columns = ["Pod", "Kind", "Phase", "Requests"];
    byId("node-body").replaceChildren(pods.length ? table(`Pods of node ${name}`, columns, rows) : "No pod is on this node.");
  } catch (error) {
    byId("node-body").replaceChildren(error.message);
  }
}

const requests = (each) => Object.entries(each).map(([name, value]) => amount(name, value)).join(", ");

function close() {
  byId("node").hidden = true;
  tiles.get(open)?.focus();
  open = "";
}

function drawTable() {
  if (!byId("nodes-table").open) return;
  const rows = [...nodes].map(([name, node]) => [name, node.state, plural(node.pods, "pod"), describe(node),
    `${bare(resource, node.free[resource] ?? 0)} of ${amount(resource, node.has[resource] ?? 0)}`]);
  byId("nodes-rows").replaceChildren(table("Nodes", ["Node", "State", "Pods", "What runs", "Free"], rows));
}
