"use strict";
/* The story in ten seconds: who is best at what, a picture of it, and the head of the board. */

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
  filters: ["paradigm", "model"],
  keys: ["weights"],
  render(root) {
    const paradigm = mainParadigm();
    root.append(
      el(
        "section",
        { class: "hero" },
        el("h1", {}, story(paradigm)),
        el("p", { class: "lead" }, whatWasAsked()),
        D.meta.remarks.map((r) => paragraph(r)),
      ),
      el("div", { class: "story" }, pictureCard(paradigm), headCard(paradigm)),
      tiles(),
      glanceCard(),
      readingCard(),
      el("div", { class: "grid2" }, datasetCard(), methodCard()),
    );
  },
});

/* One sentence about the leaders of a paradigm. */
function story(paradigm) {
  const lead = (metric) => {
    const r = rankingOf(paradigm, metric);
    return separates(r) ? r.methods[0] : null;
  };
  const title = (name) => METHOD[name].title;
  const near = lead("l2_hamming") || lead("gower"),
    real = lead("density_percentile") || lead("log_density"),
    few = lead("sparsity"),
    fast = lead("ms_per_row");
  if (!near || !real) return `${D.methods.length} counterfactual methods, put to the same questions`;
  const first =
    near === real
      ? `${title(near)} is both nearest and most plausible.`
      : `${title(near)} stays nearest, ${title(real)} is most plausible: nobody is both.`;
  const rest = [];
  if (few) rest.push(`${title(few)} changes the fewest features`);
  if (fast) rest.push(`${title(fast)} is fastest`);
  return `${first}${rest.length ? ` ${rest.join(", ")}.` : ""}`;
}

function whatWasAsked() {
  const m = D.meta,
    asked = new Map();
  CELLS.rows.forEach((n, i) => {
    const key = `${CELLS.dataset[i]}|${CELLS.model[i]}|${CELLS.fold[i]}`;
    asked.set(key, Math.max(asked.get(key) || 0, n || 0));
  });
  const rows = [...asked.values()].reduce((a, b) => a + b, 0);
  const folds = `${m.folds} ${m.folds === 1 ? "fold" : "folds"}`;
  return (
    `Suite “${m.suite}”: ${D.methods.length} methods answered up to ${count(rows)} questions each, on ${D.datasets.length} datasets, ` +
    `${D.models.length} models and ${folds}. Every answer was checked on the real model before it was counted; failures are shown, never dropped. Who leads has the best mean rank.`
  );
}

function pictureCard(paradigm) {
  const x = firstOf(["l2_hamming", "gower", "l2"]),
    y = firstOf(["density_percentile", "log_density", "success"]);
  if (!x || !y || x === y) return null;
  const made = scatterPoints(paradigm, x, y);
  if (made.points.length < 2) return null;
  const narrowed = narrow();
  return card(
    `${groupTitle(paradigm)}: near against plausible`,
    chartBox("trade-off", narrowed ? 380 : 430, scatterChart(made, x, y)),
    paragraph(
      `${frontText(made)} ${commonText(made.common)}`,
      "muted small",
    ),
  );
}

function headCard(paradigm) {
  const board = boardLines(paradigm);
  if (!board.lines.length) return null;
  const telling = board.criteria.filter((c) => separates(rankingOf(paradigm, c)));
  const criteria = telling.filter((c) => c !== "success").slice(0, 3);
  const rows = board.lines.slice(0, 6);
  const mine = board.lines.filter((x) => isMine(x.name) && !rows.includes(x)).slice(0, 2);
  const all = [...rows, ...mine];
  const line = (x) =>
    el(
      "tr",
      { class: rowClass(x.name) },
      el("th", { class: "method", scope: "row" }, `${board.lines.indexOf(x) + 1}. `, methodName(x.name)),
      el("td", {}, x.average.toFixed(1)),
      el("td", {}, answeredText(paradigm, x.name)),
      criteria.map((c) => el("td", {}, withUnit(c, x.values[c]))),
    );
  const head = [
    el("th", { class: "text", scope: "col" }, "Method"),
    el("th", { scope: "col" }, tip("Mean rank over the criteria of the leaderboard; 1 is best.", "Rank")),
    el("th", { scope: "col" }, tip(shareTip, "Rows ↑")),
    criteria.map((c) => el("th", { scope: "col" }, tip(METRIC[c].meaning, shortTitle(c)))),
  ];
  return card(
    "Head of the leaderboard",
    sheet({ class: "wide sticky", id: "head" }, head.flat(), all.map(line), "Head of the leaderboard"),
    paragraph(
      `${groupTitle(paradigm)}, sorted by the mean of their ranks in ${board.criteria.map((c) => METRIC[c].title).join(", ")}. What counts, and how much, is yours to choose in the leaderboard.`,
      "muted small",
    ),
    action(`All ${board.lines.length} methods`, () => openView(VIEWS.find((v) => v.id === "leaderboard")), "to-board"),
  );
}

function answeredText(paradigm, name) {
  const share = foundShare(name, paradigm);
  return share === null ? "–" : `${percent(share)} %`;
}

function shortTitle(metric) {
  const short = { l2_hamming: "L2-Ham.", density_percentile: "Dens. pct" };
  return `${short[metric] || METRIC[metric].title} ${arrow(metric)}`;
}

function tiles() {
  const m = D.meta,
    total = Object.values(m.states).reduce((a, b) => a + b, 0),
    bad = problems();
  return el(
    "div",
    { class: "tiles" },
    total ? tile(`${count(m.states.done || 0)} / ${count(total)}`, "cells with scores") : null,
    tile(successShare(), "of explained rows solved"),
    m.seconds ? tile(duration(m.seconds), "spent by the methods") : null,
    total ? tile(count(bad), "cells failed, timed out or missing", bad ? "bad" : "") : null,
  );
}
function tile(value, label, kind) {
  return el("div", { class: `tile ${kind || ""}` }, el("b", {}, value), el("span", {}, label));
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
  const body = D.paradigms.map((p) =>
    el(
      "tr",
      { class: "group" },
      el("th", { scope: "row" }, PARADIGM[p]),
      columns.map(([metric]) => {
        const r = rankingOf(p, metric);
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
            `${withUnit(metric, r.mean[0])}${
              overFound(metric) ? ` over ${covers(foundShare(r.methods[0], p))}` : ""
            }, rank ${r.rank[0].toFixed(1)} of ${r.methods.length}`,
          ),
        );
      }),
    ),
  );
  const head = columns.map(([metric, title]) =>
    el(
      "th",
      { class: "text", scope: "col" },
      tip(METRIC[metric].meaning, title),
      el("div", { class: "unit" }, axisTitle(metric)),
    ),
  );
  return card(
    "At a glance",
    paragraph("The method with the best mean rank, per paradigm and criterion, with its mean value."),
    sheet({ class: "wide" }, [el("th", {}), ...head], body, "Best method per paradigm and criterion"),
  );
}

function readingCard() {
  const terms = [
    ["Problem", "A dataset with a model. Folds of a problem are averaged before methods are compared."],
    [
      "Success",
      "Share of explained rows that end with a counterfactual which the model accepts and the feature space allows. In the paper's tables this is the column “Valid.”; its “Cov.” is the share of rows with any answer, right or wrong.",
    ],
    ["↑ ↓", "Higher or lower is better. In each table the best complete entry of a dataset is bold."],
    ["± ", "Sample standard deviation over folds; a number has as many digits as its deviation deserves."],
    [
      "* and badges",
      "A star marks numbers from fewer folds than planned; a badge such as timeout or skip replaces a number that does not exist. Point at it, or focus it, for the reason.",
    ],
    [
      "Distances",
      "Are averaged over the rows a method solved, as are sparsity and plausibility; the share of these rows stands beside them (Rows, Valid. or Found). A method that solves only easy rows looks close, so ranks are made row by row, an unsolved row coming last; the leaderboard also compares on the rows that all methods solved.",
    ],
    [
      "Address",
      "View, filters, sorting and rows are part of this page's address: copy it to share what you see.",
    ],
  ];
  return el(
    "details",
    { class: "card", open: !narrow() },
    el("summary", {}, "How to read this page"),
    el("dl", { class: "terms" }, terms.map(([t, d]) => [el("dt", {}, t), el("dd", {}, d)])),
  );
}

function datasetCard() {
  const columns = [
    { key: "name", title: "Dataset", value: (d) => d.title, cell: (d) => tip(d.description, d.title) },
    { key: "task", title: "Task", text: true, value: (d) => d.task },
    { key: "features", title: "Features", value: (d) => d.features, better: "higher" },
    { key: "labels", title: "Categorical", value: (d) => d.labels, better: "higher" },
    { key: "protected", title: "Protected", text: true, value: (d) => d.protected.join(", ") || "–" },
  ];
  return card("Datasets", grid({ id: "datasets", columns, rows: D.datasets, label: "Datasets" }));
}

function methodCard() {
  const settings = (m) =>
    Object.entries(m.settings)
      .map(([k, v]) => `${k} = ${JSON.stringify(v)}`)
      .join(", ") || "default settings";
  const columns = [
    { key: "name", title: "Method", value: (m) => m.title, cell: (m) => methodName(m.name) },
    { key: "kind", title: "Paradigm", text: true, value: (m) => m.paradigms.map((p) => PARADIGM[p]).join(", ") },
    { key: "settings", title: "Settings", text: true, wrap: true, value: settings },
  ];
  return card(
    "Methods",
    grid({ id: "methods", columns, rows: D.methods, label: "Methods", rowClass: (m) => rowClass(m.name) }),
  );
}
