// Talks to the server. The token lives in this tab only (sessionStorage), and goes into a header of each request: no
// other site and no other port of this host ever gets it from the browser.

const KEY = "edl-token";
const SILENCE_MS = 45_000;
const LONGEST_PAUSE_MS = 15_000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function takeTokenOfAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  sessionStorage.setItem(KEY, found);
  history.replaceState(null, "", location.pathname);
}

export const hasToken = () => Boolean(sessionStorage.getItem(KEY));
export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const dropToken = () => sessionStorage.removeItem(KEY);

export async function request(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  if (response.ok) return response;
  let message = `the server answered ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch { /* the answer of a proxy: the status is all there is */ }
  throw new Refused(response.status, message);
}

export async function ask(path, body) {
  const options = body === undefined ? {} :
    { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await request(path, options)).json();
}

// Reads the event stream until `signal` aborts; connects again after an error. EventSource cannot send a header.
export async function follow(handlers, signal, onState) {
  let failures = 0;
  while (!signal.aborted) {
    try {
      await read(handlers, signal, () => { failures = 0; onState("live", ""); });
      onState("lost", "the stream ended");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) throw error;
      onState("lost", error instanceof Refused ? error.message : "the server cannot be reached");
    }
    failures += 1;
    await pause(Math.min(LONGEST_PAUSE_MS, 500 * 2 ** failures) * (0.5 + Math.random() / 2));
  }
}

const pause = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });

async function read(handlers, signal, onOpen) {
  const stop = new AbortController();
  signal.addEventListener("abort", () => stop.abort(), { once: true });
  let watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
  try {
    const response = await request("events", { signal: stop.signal, headers: { Accept: "text/event-stream" } });
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
      const messages = (rest + value).split("\n\n");
      rest = messages.pop();
      for (const message of messages) dispatch(message, handlers);
    }
  } finally {
    clearTimeout(watchdog);
    stop.abort();
  }
}

function dispatch(message, handlers) {
  const fields = {};
  for (const line of message.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (fields.event in handlers) handlers[fields.event](JSON.parse(fields.data));
}
