"use strict";
/* Data, numbers and small building blocks that all views share. */

const D = JSON.parse(document.getElementById("data").textContent);
/* Maps by label have no prototype: a label may be called __proto__ or constructor. */
const blank = () => Object.create(null);
const named = (list) => list.reduce((out, x) => ((out[x.name] = x), out), blank());
const METHOD = named(D.methods),
  METRIC = named(D.metrics),
  DATASET = named(D.datasets),
  MODEL = named(D.models);
const PARADIGM = {
  local: "Local",
  global: "Global",
  group: "Group-wise",
  regression: "Regression",
};
const ALL = "all",
  APART = "apart";
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
  node.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

function card(title, ...children) {
  return el("section", { class: "card" }, title ? el("h2", {}, title) : null, ...children);
}

function paragraph(text, kind) {
  return el("p", { class: kind || "muted" }, text);
}

/* A region that scrolls sideways, and says so while there is more to see. */
function scroller(content, label) {
  const inner = el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    content,
  );
  const box = el(
    "div",
    { class: "scrollbox" },
    inner,
    el("div", { class: "more", "aria-hidden": "true" }, "scroll →"),
    el("div", { class: "below", "aria-hidden": "true" }, "scroll ↓"),
  );
  const look = () => {
    const left = inner.scrollWidth - inner.clientWidth - inner.scrollLeft;
    box.dataset.right = left > 2 ? "1" : "";
    box.dataset.down = inner.scrollHeight - inner.clientHeight - inner.scrollTop > 2 ? "1" : "";
  };
  inner.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(inner);
  return box;
}

/* A table that scrolls where it is too wide: attributes, cells of the head, rows, its name. */
function sheet(attributes, head, rows, label) {
  const top = el("thead", {}, el("tr", {}, head));
  return scroller(el("table", attributes, top, el("tbody", {}, rows)), label);
}

/* A labelled select; options are [value, title] pairs. The id brings the focus back. */
function picker(label, options, value, change, id) {
  const select = el(
    "select",
    { id, on: { change: () => change(select.value) } },
    options.map(([v, title]) => el("option", { value: v, selected: v === value }, title)),
  );
  return el("label", { class: "pick" }, label, select);
}

function checkbox(label, checked, change, id) {
  const input = el("input", {
    type: "checkbox",
    id,
    checked,
    on: { change: () => change(input.checked) },
  });
  return el("label", { class: "check" }, input, label);
}

function action(label, press, id, attributes) {
  return el(
    "button",
    { type: "button", class: "ghost", id, ...(attributes || {}), on: { click: press } },
    label,
  );
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

/* With shipped scores beside a run, the run's own methods are the ones that are marked. */
const MIXED = D.methods.some((m) => m.baseline) && D.methods.some((m) => !m.baseline);
const isMine = (name) => MIXED && !METHOD[name].baseline;
const rowClass = (name) =>
  [isMine(name) ? "mine" : "", S.mark === name ? "marked" : ""].join(" ").trim() || null;

function methodName(name) {
  return [
    el("span", { class: "swatch", css: { "--c": colour(name) }, "aria-hidden": "true" }),
    METHOD[name].title,
    isMine(name) ? el("span", { class: "tag yours" }, "yours") : null,
  ];
}

function tip(text, ...children) {
  return el("span", { "data-tip": text, tabindex: "0" }, ...children);
}

/* Numbers. */
function digitsFor(value, deviation) {
  if (deviation > 0) return Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(deviation))));
  if (value === 0 || Number.isInteger(value)) return Math.abs(value) < 100 ? 2 : 0;
  return Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(Math.abs(value)))));
}
/* A mean with as many decimals as its deviation deserves. */
function shown(value, deviation) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Math.abs(value) >= 1e6) return value.toExponential(1);
  const text = value.toFixed(digitsFor(value, deviation));
  return /^-0(\.0+)?$/.test(text) ? text.slice(1) : text;
}
function spread(value, deviation) {
  if (deviation === null || deviation === undefined || Math.abs(value) >= 1e6) return "";
  return `±${deviation >= 1e6 ? deviation.toExponential(1) : deviation.toFixed(digitsFor(value, deviation))}`;
}
function fine(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e5) return value.toExponential(2);
  return size >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
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
const isTime = (metric) => /^(time_|ms_|cpu_)/.test(metric);
const narrow = () => innerWidth < 760;
const metricTitle = (metric) => `${METRIC[metric]?.title || metric} ${arrow(metric)}`.trim();
/* Shares of rows are told in percent; other shares, such as changed features, as numbers. */
const RATES = ["success", "coverage", "validity", "unchanged", "violations"];
/* A value with its unit: 31.5 ms, 99.7 %, 0.169. */
function withUnit(metric, value) {
  if (value === null || value === undefined) return "–";
  if (RATES.includes(metric)) return `${percent(value)} %`;
  if (/^(ms_|cpu_ms)/.test(metric)) return `${fine(value)} ms`;
  if (/^time_/.test(metric)) return `${fine(value)} s`;
  return fine(value);
}

/* Means of most metrics are over the rows that a method answered: they are shown with the share
   of rows that they cover. With less than this part of what the most complete method answers, a
   mean is over easier rows and is on no front. */
const FULL_SHARE = 0.9;
const overFound = (metric) => METRIC[metric]?.rows === "found";
const covers = (share) => (share === null || share === undefined ? "" : `${percent(share)} % of rows`);
const shareTip = "Share of explained rows with a verified answer. Means of distances, sparsity and plausibility are over these rows only.";
/* The share of rows that a method answered, over some problems or over all of its cells. */
const SHARE_CACHE = new Map();
function foundShare(name, paradigm, problems) {
  const key = [name, paradigm, S.model, S.dataset, problems ? problems.join() : ""].join("|");
  if (!SHARE_CACHE.has(key)) {
    const mine = cells({ paradigm, method: name, kind: ALL }).filter(
      (i) => !problems || problems.includes(problemOf(i)),
    );
    const values = problemValues(["success"], mine);
    const made = meanInterval([...values.keys()], [...values.values()].map((v) => v.success));
    SHARE_CACHE.set(key, values.size ? made.value : null);
  }
  return SHARE_CACHE.get(key);
}

/* A small generator of random numbers, always the same, for intervals. */
function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/* Cells that pass the filters, as positions. */
const CELLS = D.cells;
const KINDS = [...new Set(D.methods.map((m) => m.kind))];
const ofKind = (name) => S.kind === ALL || METHOD[name].kind === S.kind;
function cells(more) {
  const keep = { paradigm: S.paradigm, model: S.model, dataset: S.dataset, kind: S.kind, ...(more || {}) };
  const everyParadigm = keep.paradigm === ALL || keep.paradigm === APART;
  const out = [];
  for (let i = 0; i < CELLS.dataset.length; i++) {
    if (!everyParadigm && CELLS.paradigm[i] !== keep.paradigm) continue;
    if (keep.model !== ALL && CELLS.model[i] !== keep.model) continue;
    if (keep.dataset !== ALL && CELLS.dataset[i] !== keep.dataset) continue;
    if (keep.method && CELLS.method[i] !== keep.method) continue;
    if (keep.kind !== ALL && METHOD[CELLS.method[i]].kind !== keep.kind) continue;
    out.push(i);
  }
  return out;
}
const at = (metric, i) => (D.values[metric] ? D.values[metric].v[i] : null);

/* Problems (dataset, model) on which all of some metrics have values: {problem: {metric: mean}}. */
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
  const task = S.paradigm === "regression" ? "regression" : "classification";
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
  const shared = () => all.filter((key) => kept.every(([, v]) => v.has(key)));
  kept.sort((a, b) => b[1].size - a[1].size);
  while (kept.length > 2 && shared().length < all.length / 2) kept.pop(); // too few would be left
  const problems = shared();
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
/* Mean over problems with a 95 % interval: datasets are drawn again, with their models. */
function meanInterval(problems, values) {
  const groups = new Map();
  problems.forEach((key, i) => {
    const dataset = key.split("|")[0];
    if (!groups.has(dataset)) groups.set(dataset, []);
    groups.get(dataset).push(values[i]);
  });
  const means = [...groups.values()].map(mean),
    next = random(7),
    draws = [];
  if (means.length < 3) return { value: mean(means), low: null, high: null };
  for (let b = 0; b < 400; b++) {
    let sum = 0;
    for (let i = 0; i < means.length; i++) sum += means[Math.floor(next() * means.length)];
    draws.push(sum / means.length);
  }
  draws.sort((a, b) => a - b);
  return { value: mean(means), low: quantile(draws, 0.025), high: quantile(draws, 0.975) };
}
function commonText(common) {
  const left = common.leftOut.length
    ? ` Left out, with values on too few of them: ${common.leftOut.map((m) => METHOD[m].title).join(", ")}.`
    : "";
  const datasets = unique(common.problems.map((k) => k.split("|")[0])).length;
  const bars = datasets >= 3 ? " Bars: 95 % intervals, datasets drawn again." : "";
  return `Means over the ${common.problems.length} of ${common.of} ${common.task} problems (dataset and model) on which every method shown has a value.${bars}${left}`;
}
function methodsOf(positions) {
  const there = new Set(positions.map((i) => CELLS.method[i]));
  return D.methods.map((m) => m.name).filter((m) => there.has(m));
}
function datasetsOf(positions) {
  const there = new Set(positions.map((i) => CELLS.dataset[i]));
  return D.datasets.map((d) => d.name).filter((d) => there.has(d));
}

/* Groups that are ranked: the chosen one, all together, or each paradigm for itself. */
function groupTitle(paradigm) {
  return paradigm === ALL ? "All classification methods" : `${PARADIGM[paradigm]} methods`;
}
function rankedGroups() {
  if (S.paradigm !== APART) return [S.paradigm];
  return D.paradigms;
}
/* The paradigm that a single picture shows: the chosen one, or the one with most methods. */
function mainParadigm() {
  if (S.paradigm !== APART) return S.paradigm;
  const size = (p) => D.methods.filter((m) => m.paradigms.includes(p)).length;
  return [...D.paradigms].sort((a, b) => size(b) - size(a))[0];
}
function rankingOf(paradigm, metric) {
  const made = ((D.rankings[paradigm] || {})[S.model] || {})[metric];
  return made || plainRanking(paradigm, metric);
}
/* Ranks by dataset means, for metrics that are not ranked row by row. */
const RANK_CACHE = new Map();
function plainRanking(paradigm, metric) {
  const key = [paradigm, S.model, metric].join("|");
  if (!RANK_CACHE.has(key)) RANK_CACHE.set(key, makePlainRanking(paradigm, metric));
  return RANK_CACHE.get(key);
}
function makePlainRanking(paradigm, metric) {
  const better = METRIC[metric]?.better;
  if (!better || better === "none") return null;
  const positions = cells({ paradigm, dataset: ALL, kind: ALL }).filter(
    (i) => paradigm !== ALL || CELLS.paradigm[i] !== "regression",
  );
  const byMethod = new Map();
  for (const name of methodsOf(positions)) {
    const values = problemValues(
      [metric],
      positions.filter((i) => CELLS.method[i] === name),
    );
    const sets = new Map();
    for (const [problem, v] of values) {
      const dataset = problem.split("|")[0];
      if (!sets.has(dataset)) sets.set(dataset, []);
      sets.get(dataset).push(v[metric]);
    }
    byMethod.set(name, new Map([...sets].map(([d, list]) => [d, mean(list)])));
  }
  const all = unique([...byMethod.values()].flatMap((m) => [...m.keys()]));
  const kept = [...byMethod].filter(([, m]) => m.size && m.size >= all.length / 2);
  const datasets = all.filter((d) => kept.every(([, m]) => m.has(d)));
  if (kept.length < 2 || !datasets.length) return null;
  const sign = better === "lower" ? 1 : -1;
  const lines = kept.map(([name, m]) => {
    const ranks = datasets.map((d) => {
      const mine = m.get(d);
      const before = kept.filter(([, o]) => sign * (o.get(d) - mine) < 0).length;
      const same = kept.filter(([, o]) => o.get(d) === mine).length;
      return before + (same + 1) / 2;
    });
    const values = datasets.map((d) => m.get(d));
    const around = meanInterval(
      datasets.map((d) => `${d}|`),
      values,
    );
    return { name, rank: mean(ranks), around };
  });
  lines.sort((a, b) => a.rank - b.rank);
  return {
    methods: lines.map((x) => x.name),
    rank: lines.map((x) => x.rank),
    mean: lines.map((x) => x.around.value),
    low: lines.map((x) => x.around.low),
    high: lines.map((x) => x.around.high),
    problems: datasets.length,
    of: all.length,
    left_out: [...byMethod.keys()].filter((n) => !kept.some(([k]) => k === n)),
    plain: true,
  };
}
/* Whether a criterion tells the methods apart. */
function separates(r) {
  return r !== null && unique(r.rank.map((v) => v.toFixed(3))).length > 1;
}
/* Metrics by which a paradigm can be ranked: those of the report first, then every other. */
function rankable(paradigm) {
  const made = Object.keys((D.rankings[paradigm] || {})[S.model] || {});
  const first = D.ranked.filter((m) => made.includes(m) || METRIC[m]);
  const rest = D.metrics.filter((m) => m.better !== "none").map((m) => m.name);
  return unique([...first, ...made, ...rest]).filter(
    (m) => METRIC[m] && rankingOf(paradigm, m) !== null,
  );
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

/* Files from what is shown. */
function download(name, text, type) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
}
function toCsv(rows) {
  const cell = (v) => {
    const text = v === null || v === undefined ? "" : String(v);
    const safe = /^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${rows.map((r) => r.map(cell).join(",")).join("\n")}\n`;
}
