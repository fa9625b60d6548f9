"use strict";
/* What was run, who stands where at a glance, and how to read the rest. */

const GLANCE = [
  ["success", "Helps most people"],
  ["mae", "Hits the target"],
  ["l2_hamming", "Stays closest"],
  ["sparsity", "Changes least"],
  ["density_percentile", "Most plausible"],
  ["ms_per_row", "Fastest"],
];

VIEWS.push({
  id: "overview",
  title: "Overview",
  filters: ["model"],
  render(root) {
    const m = D.meta,
      total = Object.values(m.states).reduce((a, b) => a + b, 0);
    root.append(
      el(
        "section",
        { class: "hero" },
        el(
          "h1",
          {},
          `${count(m.rows)} questions put to ${D.methods.length} counterfactual methods`,
        ),
        el(
          "p",
          { class: "lead" },
          `Suite “${m.suite}”: ${D.datasets.length} datasets, ${D.models.length} models, ${m.folds} ${m.folds === 1 ? "fold" : "folds"}. ` +
            "Every answer was checked on the real model before it was counted. Numbers are means over folds; failed cells are shown, never dropped.",
        ),
        m.remarks.map((r) => paragraph(r)),
      ),
    );
    root.append(
      el(
        "div",
        { class: "tiles" },
        tile(`${count(m.states.done || 0)} / ${count(total)}`, "cells with scores"),
        tile(successShare(), "of explained rows solved"),
        tile(duration(m.seconds), "spent by the methods"),
        tile(count(problems()), "cells failed, timed out or missing"),
      ),
    );
    root.append(
      glanceCard(),
      readingCard(),
      el("div", { class: "grid2" }, datasetCard(), methodCard()),
    );
  },
});

function tile(value, label) {
  return el("div", { class: "tile" }, el("b", {}, value), el("span", {}, label));
}
function problems() {
  return Object.entries(D.meta.states)
    .filter(([s]) => s !== "done" && s !== "skip")
    .reduce((a, [, n]) => a + n, 0);
}
function duration(seconds) {
  if (seconds >= 7200) return `${(seconds / 3600).toFixed(1)} h`;
  return seconds >= 120 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`;
}
function successShare() {
  let found = 0,
    rows = 0;
  for (let i = 0; i < CELLS.dataset.length; i++) {
    found += at("rows_found", i) || 0;
    rows += (CELLS.rows[i] || 0) - (at("rows_not_applicable", i) || 0);
  }
  return rows ? `${percent(found / rows)} %` : "–";
}

function glanceCard() {
  const columns = GLANCE.filter(([metric]) => METRIC[metric]);
  const body = D.paradigms.map((p) => {
    const rankings = (D.rankings[p] || {})[FILTER.model] || {};
    return el(
      "tr",
      { class: "group" },
      el("th", { scope: "row" }, PARADIGM[p]),
      columns.map(([metric]) => {
        const r = rankings[metric];
        if (!r) return el("td", { class: "text muted" }, "–");
        const ties = r.rank.filter((v) => v === r.rank[0]).length;
        const lead =
          ties === r.methods.length
            ? "all alike"
            : ties > 1
              ? `${ties} methods share the lead`
              : methodName(r.methods[0]);
        return el(
          "td",
          { class: "text" },
          el("div", {}, lead),
          el(
            "span",
            { class: "muted small" },
            `${fine(r.mean[0])}, rank ${r.rank[0].toFixed(1)} of ${r.methods.length}`,
          ),
        );
      }),
    );
  });
  const head = columns.map(([metric, title]) =>
    el("th", { class: "text", scope: "col" }, tip(METRIC[metric].meaning, title)),
  );
  return card(
    "At a glance",
    paragraph(
      "The method with the best mean rank over all datasets, per paradigm and criterion, with its mean value. No method is best at everything; see Trade-offs.",
    ),
    sheet({ class: "wide" }, [el("th", {}), ...head], body, "Best method per paradigm and criterion"),
  );
}

function readingCard() {
  const terms = [
    [
      "Problem",
      "A dataset with a model. Folds of a problem are averaged before methods are ranked.",
    ],
    [
      "Success",
      "Share of explained rows that end with a counterfactual which the model accepts and the feature space allows. In the paper's tables this is the column “Valid.”.",
    ],
    [
      "↑ ↓",
      "Higher or lower is better. In each table the best complete entry of a dataset is bold.",
    ],
    ["± ", "Sample standard deviation over folds."],
    [
      "* and badges",
      "A star marks numbers from fewer folds than planned; a badge such as timeout or skip replaces a number that does not exist. Point at it, or focus it, for the reason.",
    ],
    [
      "Distances",
      "Are averaged over the rows a method solved. A method that solves only easy rows looks close; the leaderboard also compares on the rows that all methods solved.",
    ],
    [
      "Significance",
      "Friedman's test over problems; pairs by Wilcoxon's test with Holm's correction; the diagram uses Nemenyi's critical difference at 5 %.",
    ],
  ];
  return card(
    "How to read this page",
    el(
      "dl",
      { class: "terms" },
      terms.map(([t, d]) => [el("dt", {}, t), el("dd", {}, d)]),
    ),
  );
}

function datasetCard() {
  const rows = D.datasets.map((d) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, tip(d.description, d.title)),
      el("td", { class: "text" }, d.task),
      el("td", {}, String(d.features)),
      el("td", {}, String(d.labels)),
      el("td", { class: "text" }, d.protected.join(", ") || "–"),
    ),
  );
  const head = [
    ["Dataset", "text"],
    ["Task", "text"],
    ["Features"],
    ["Categorical"],
    ["Protected", "text"],
  ];
  return card(
    "Datasets",
    sheet(
      { class: "wide" },
      head.map(([t, c]) => el("th", { class: c, scope: "col" }, t)),
      rows,
      "Datasets",
    ),
  );
}

function methodCard() {
  const rows = D.methods.map((m) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, methodName(m.name)),
      el("td", { class: "text" }, m.paradigms.map((p) => PARADIGM[p]).join(", ")),
      el(
        "td",
        { class: "text wrap small muted" },
        Object.entries(m.settings)
          .map(([k, v]) => `${k} = ${JSON.stringify(v)}`)
          .join(", ") || "default settings",
      ),
    ),
  );
  const head = ["Method", "Paradigm", "Settings"].map((t) =>
    el("th", { class: "text", scope: "col" }, t),
  );
  return card(
    "Methods",
    scroller(
      el("table", { class: "wide" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)),
      "Methods",
    ),
  );
}
