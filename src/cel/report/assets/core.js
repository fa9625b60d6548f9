"use strict";
/* Data, filters, numbers and small building blocks that all views share. */

const D = JSON.parse(document.getElementById("data").textContent);
const named = (list) => Object.fromEntries(list.map((x) => [x.name, x]));
const METHOD = named(D.methods),
  METRIC = named(D.metrics);
const DATASET = named(D.datasets),
  MODEL = named(D.models);
const PARADIGM = {
  local: "Local",
  global: "Global",
  group: "Group-wise",
  regression: "Regression",
};
const ALL = "all";
const FILTER = { paradigm: ALL, model: ALL, dataset: ALL };
const STATUS = {
  found: "#2a9d6f",
  invalid: "#e0a030",
  not_found: "#c8553d",
  infeasible: "#7d6bb0",
  timeout: "#5b7c99",
  error: "#a11d33",
  not_applicable: "#8d969e",
};
const VIEWS = [];

/* Build an element; text is always inserted as text. */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on")
      for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (name === "css")
      for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

function card(title, ...children) {
  return el("section", { class: "card" }, title ? el("h2", {}, title) : null, ...children);
}

function paragraph(text, kind) {
  return el("p", { class: kind || "muted" }, text);
}

function scroller(table, label) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

/* A table that scrolls where it is too wide: attributes, cells of the head, rows, its name. */
function sheet(attributes, head, rows, label) {
  const top = el("thead", {}, el("tr", {}, head));
  return scroller(el("table", attributes, top, el("tbody", {}, rows)), label);
}

/* A labelled select; options are [value, title] pairs. */
function picker(label, options, value, change) {
  const select = el(
    "select",
    { on: { change: () => change(select.value) } },
    options.map(([v, title]) => el("option", { value: v, selected: v === value }, title)),
  );
  return el("label", { class: "pick" }, label, select);
}

function checkbox(label, checked, change) {
  const input = el("input", {
    type: "checkbox",
    checked,
    on: { change: () => change(input.checked) },
  });
  return el("label", { class: "check" }, input, label);
}

/* The colour of a method, lighter on dark ground. */
function colour(name) {
  const hex = METHOD[name].colour;
  if (document.documentElement.dataset.theme !== "dark") return hex;
  const light = [1, 3, 5].map((i) =>
    Math.round(parseInt(hex.slice(i, i + 2), 16) * 0.74 + 255 * 0.26),
  );
  return `rgb(${light.join(",")})`;
}

function methodName(name) {
  const m = METHOD[name];
  return [
    el("span", { class: "swatch", css: { "--c": colour(name) }, "aria-hidden": "true" }),
    m.title,
    m.baseline
      ? el(
          "span",
          {
            class: "tag",
            tabindex: "0",
            "data-tip": "Not run here: scores that come with the package.",
          },
          "shipped baseline",
        )
      : null,
  ];
}

function tip(text, ...children) {
  return el("span", { "data-tip": text, tabindex: "0" }, ...children);
}

/* Numbers. */
function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e5) return value.toExponential(1);
  const text = value.toFixed(size < 100 ? 2 : 0);
  return /^-0(\.0+)?$/.test(text) ? text.slice(1) : text;
}
/* A standard deviation, with as many digits as its mean. */
function spread(value, deviation) {
  if (deviation === null || deviation === undefined || Math.abs(value) >= 1e5) return "";
  return `±${deviation >= 1e5 ? deviation.toExponential(1) : deviation.toFixed(Math.abs(value) < 100 ? 2 : 0)}`;
}
function fine(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1e5 ? value.toExponential(2) : String(Number(value.toPrecision(3)));
}
/* A share in percent, rounded towards zero: only what is complete is called 100. */
function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const tenths = Math.floor(1000 * share + 1e-9) / 10;
  return tenths > 99 && tenths < 100 ? tenths.toFixed(1) : String(Math.floor(100 * share + 1e-9));
}
const count = (n) => n.toLocaleString("en-GB");
const known = (list) => list.filter((v) => v !== null && v !== undefined);
const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);
function quantile(sorted, q) {
  const at = (sorted.length - 1) * q,
    low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
function pvalue(p) {
  return p === null ? "not defined" : p < 0.001 ? "< 0.001" : p.toFixed(3);
}
const unique = (list) => [...new Set(list)];
const arrow = (metric) => ({ higher: "↑", lower: "↓" })[METRIC[metric]?.better] || "";
const isShare = (metric) => METRIC[metric]?.unit === "share";
const narrow = () => innerWidth < 760;
const metricTitle = (metric) => `${METRIC[metric]?.title || metric} ${arrow(metric)}`.trim();

/* Cells that pass the filters, as positions. */
const CELLS = D.cells;
function cells(more) {
  const keep = { ...FILTER, ...(more || {}) };
  const out = [];
  for (let i = 0; i < CELLS.dataset.length; i++) {
    if (keep.paradigm !== ALL && CELLS.paradigm[i] !== keep.paradigm) continue;
    if (keep.model !== ALL && CELLS.model[i] !== keep.model) continue;
    if (keep.dataset !== ALL && CELLS.dataset[i] !== keep.dataset) continue;
    if (keep.method && CELLS.method[i] !== keep.method) continue;
    out.push(i);
  }
  return out;
}
const at = (metric, i) => (D.values[metric] ? D.values[metric].v[i] : null);
const why = (metric, i) => (D.values[metric] ? D.values[metric].why[i] : "") || "";

/* Problems (dataset, model) on which a metric or several have values: {problem: {metric: mean}}. */
const problemOf = (i) => `${CELLS.dataset[i]}|${CELLS.model[i]}`;
function problemValues(metrics, positions) {
  const sums = new Map();
  for (const i of positions) {
    const key = problemOf(i);
    if (!sums.has(key)) sums.set(key, Object.fromEntries(metrics.map((m) => [m, []])));
    for (const m of metrics) if (at(m, i) !== null) sums.get(key)[m].push(at(m, i));
  }
  const out = new Map();
  for (const [key, lists] of sums) {
    const values = Object.fromEntries(metrics.map((m) => [m, mean(lists[m])]));
    if (metrics.every((m) => values[m] !== null)) out.set(key, values);
  }
  return out;
}
/* Methods on the problems that all of them answered, so that nobody is judged on easier ones.
   A method with values on less than half of the problems is left out and named. */
function onCommonProblems(metrics, positions) {
  const task = FILTER.paradigm === "regression" ? "regression" : "classification";
  const tasks = unique(positions.map((i) => DATASET[CELLS.dataset[i]].task));
  const one = tasks.includes(task) ? task : tasks[0];
  const mine = positions.filter((i) => DATASET[CELLS.dataset[i]].task === one);
  const found = new Map();
  for (const name of methodsOf(mine))
    found.set(
      name,
      problemValues(
        metrics,
        mine.filter((i) => CELLS.method[i] === name),
      ),
    );
  const all = unique([...found.values()].flatMap((v) => [...v.keys()]));
  const kept = [...found].filter(([, v]) => v.size > 0 && v.size >= all.length / 2);
  const problems = all.filter((key) => kept.every(([, v]) => v.has(key)));
  return {
    task: one,
    of: all.length,
    problems,
    leftOut: [...found.keys()].filter((name) => !kept.some(([n]) => n === name)),
    methods: problems.length
      ? kept.map(([name, v]) => ({ name, values: problems.map((key) => v.get(key)) }))
      : [],
  };
}
function methodsOf(positions) {
  const there = new Set(positions.map((i) => CELLS.method[i]));
  return D.methods.map((m) => m.name).filter((m) => there.has(m));
}
function datasetsOf(positions) {
  const there = new Set(positions.map((i) => CELLS.dataset[i]));
  return D.datasets.map((d) => d.name).filter((d) => there.has(d));
}

/* Ranking for the filters in force; without a paradigm, of all classification methods. */
function rankedGroup() {
  const paradigm = FILTER.paradigm === ALL && !D.rankings[ALL] ? D.paradigms[0] : FILTER.paradigm;
  const title = paradigm === ALL ? "All classification methods" : `${PARADIGM[paradigm]} methods`;
  const models = D.rankings[paradigm] || {};
  return { title, paradigm, metrics: models[FILTER.model] || {}, there: FILTER.model in models };
}

/* A background that grows with share in [0, 1], and a text colour that stays readable. */
function heat(share, colour) {
  if (share === null || Number.isNaN(share)) return {};
  const part = Math.round(8 + 72 * Math.max(0, Math.min(1, share)));
  return {
    "--cell": `color-mix(in oklab, ${colour || "var(--accent)"} ${part}%, var(--card))`,
    "--on": part > 66 ? "var(--card)" : "var(--ink)",
  };
}
