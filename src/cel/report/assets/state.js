"use strict";
/* What the reader chose, kept in the address: a view can be shared, and Back goes back. */

const FIRST_MODE = D.meta.suite === "paper" ? "1" : "";
const DEFAULTS = {
  view: "overview",
  paradigm: APART,
  model: ALL,
  dataset: ALL,
  kind: ALL,
  mark: "",
  metric: "",
  weights: "",
  x: "",
  y: "",
  detail: "",
  quality: "",
  problem: "",
  show: "row",
  row: "",
  method: "",
  every: "",
  printed: FIRST_MODE,
  extra: "1",
  everything: "",
  q: "",
  sort: "",
  hide: "",
};
const SHARED = ["paradigm", "model", "dataset", "kind", "mark"];
const S = { ...DEFAULTS };

function addressOf() {
  const view = VIEWS.find((v) => v.id === S.view) || VIEWS[0];
  const words = new URLSearchParams();
  for (const name of [...SHARED, ...(view.keys || []), "q", "sort", "hide"])
    if (S[name] !== DEFAULTS[name]) words.set(name, S[name]);
  const text = words.toString();
  return `#${view.id}${text ? `?${text}` : ""}`;
}

function readAddress() {
  const [id, words] = location.hash.slice(1).split("?");
  Object.assign(S, DEFAULTS);
  if (VIEWS.some((v) => v.id === id)) S.view = id;
  for (const [name, value] of new URLSearchParams(words || ""))
    if (name in DEFAULTS && name !== "view") S[name] = value;
  const options = {
    paradigm: [APART, ALL, ...D.paradigms],
    model: [ALL, ...D.models.map((m) => m.name)],
    dataset: [ALL, ...D.datasets.map((d) => d.name)],
    kind: [ALL, ...KINDS],
    mark: ["", ...D.methods.map((m) => m.name)],
  };
  for (const [name, allowed] of Object.entries(options))
    if (!allowed.includes(S[name])) S[name] = DEFAULTS[name];
}

/* Change something, note it in the address and draw again; typing does not fill the history. */
function set(changes, quietly) {
  Object.assign(S, changes);
  const address = addressOf();
  if (address !== location.hash)
    history[quietly ? "replaceState" : "pushState"](null, "", address);
  redraw();
}

/* Small maps inside one word of the address: a:1.b:2 */
function unpack(text) {
  const out = blank();
  for (const part of (text || "").split(".")) {
    const [key, value] = part.split(":");
    if (key) out[decodeURIComponent(key)] = decodeURIComponent(value || "");
  }
  return out;
}
function pack(map) {
  const safe = (t) => encodeURIComponent(t).replaceAll(".", "%2E");
  return Object.entries(map)
    .filter(([, v]) => v !== "" && v !== null)
    .map(([k, v]) => `${safe(k)}:${safe(String(v))}`)
    .join(".");
}
