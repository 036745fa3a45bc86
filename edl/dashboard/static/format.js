// Numbers, times and names as people read them.

const GIB = 1024 ** 3;
const COLOURS = 8;
const colours = new Map();

export function plural(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

export function number(value) {
  return String(Number(value.toPrecision(4)));
}

export function bare(resource, value) {
  if (resource === "cpu") return number(value / 1000);
  return resource === "memory" ? number(value / GIB) : String(value);
}

export function unit(resource) {
  return { cpu: "cores", memory: "GiB of memory" }[resource] ?? resource;
}

export function amount(resource, value) {
  return `${bare(resource, value)} ${unit(resource)}`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}

export function certificate(proof) {
  const gap = (proof.gap * 100).toFixed(2);
  return `${proof.objective} ${number(proof.achieved)} of at most ${number(proof.bound)} (gap ${gap} %)`;
}

// The colour of a job: the same on the whole page, in the order in which the jobs appear.
export function colourOf(job) {
  if (!colours.has(job)) colours.set(job, colours.size % COLOURS);
  return `job-${colours.get(job)}`;
}
