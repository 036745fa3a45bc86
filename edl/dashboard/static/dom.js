// Builds elements. Every text goes in as text, never as HTML, so a hostile name is only a strange word.

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function table(caption, columns, rows) {
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((value) => make("td", {}, String(value)))));
  return make("table", {}, make("caption", { class: "hidden-visually" }, caption),
    make("thead", {}, head), make("tbody", {}, ...body));
}

// Replaces a text only if it differs: an unchanged region is not read out again.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function swatch(kind, name) {
  return make("li", {}, make("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), name);
}

// Runs at most once per frame, however often it is asked for.
export function onceAFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; work(); });
  };
}
