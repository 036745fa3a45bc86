// What applying a pasted job would change, computed by the server with the production planner; nothing is applied.

import { byId, make, table } from "./dom.js";
import { certificate, plural } from "./format.js";
import { ask } from "./server.js";

export function start() {
  const form = byId("whatif-form");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [button, result] = [form.querySelector("button"), byId("whatif-result")];
    button.disabled = true;
    result.replaceChildren("Computing.");
    try {
      result.replaceChildren(...shown(await ask("what-if", { text: byId("whatif-text").value })));
    } catch (error) {
      result.replaceChildren(make("p", { class: "error" }, error.message));
    } finally {
      button.disabled = false;
      button.focus();
    }
  });
}

function shown(found) {
  const parts = found.warnings.map((text) => make("p", { class: "error" }, text));
  if (found.jobs.length) {
    const rows = found.jobs.map((job) => [`${job.namespace}/${job.name}`, side(job.before), side(job.after), job.message]);
    parts.push(table("Jobs that would get another number of trainers", ["Job", "Now planned", "Then", "Why"], rows));
  } else {
    parts.push(make("p", {}, "No job would get another number of trainers."));
  }
  const hidden = found.hidden ? `, ${plural(found.hidden, "more changed job")} not shown` : "";
  parts.push(make("p", {}, `${plural(found.same, "job")} unchanged${hidden}.`));
  const { before, after } = found.serving;
  parts.push(make("p", {}, `Waiting serving pods placed: ${before.placed} of ${before.waiting}, then ${after.placed} of ${after.waiting}.`));
  parts.push(make("p", {}, `Certificate: ${certificate(found.certificates.before)}; then ${certificate(found.certificates.after)}.`));
  return parts;
}

function side(one) {
  if (!one) return "-";
  return one.admitted ? plural(one.target, "trainer") : "not admitted";
}
