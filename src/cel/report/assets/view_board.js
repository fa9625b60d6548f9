"use strict";
/* Leaderboard with ranks, intervals and tests. */

const BOARD_UI = { metric: "" };
const RANK_COLUMNS = [
  "success",
  "mae",
  "l2_hamming",
  "sparsity",
  "density_percentile",
  "lof",
  "ms_per_row",
];

function boardMetric(group) {
  const there = D.ranked.filter((m) => group.metrics[m]);
  if (!there.includes(BOARD_UI.metric))
    BOARD_UI.metric =
      there.includes("mae") && group.paradigm === "regression" ? "mae" : there[0] || "";
  return there;
}

function metricPicker(there, again) {
  return el(
    "div",
    { class: "controls" },
    picker(
      "Metric",
      there.map((m) => [m, metricTitle(m)]),
      BOARD_UI.metric,
      (v) => {
        BOARD_UI.metric = v;
        again();
      },
    ),
    el("span", { class: "muted small" }, METRIC[BOARD_UI.metric].meaning),
  );
}

function nothingRanked(group) {
  return card(
    group.title,
    paragraph(
      "Ranks need two methods with values on a common problem; these filters leave none.",
      "empty",
    ),
  );
}

VIEWS.push({
  id: "leaderboard",
  title: "Leaderboard",
  filters: ["paradigm", "model"],
  render(root, again) {
    const group = rankedGroup(),
      there = boardMetric(group);
    if (!there.length) {
      root.append(nothingRanked(group));
      return;
    }
    root.append(rankCard(group));
    const r = group.metrics[BOARD_UI.metric],
      node = plotBox(90 + 30 * r.methods.length);
    root.append(
      card(
        `${group.title} by ${METRIC[BOARD_UI.metric].title}`,
        metricPicker(there, again),
        testText(r),
        el("h3", {}, "Mean ranks and critical difference"),
        scroller(rankDiagram(r), "Critical-difference diagram"),
        el("h3", {}, "Means with 95 % bootstrap intervals over problems"),
        node,
        pairTable(r),
      ),
    );
    intervalPlot(node, r);
    const same = commonCard(group);
    if (same) root.append(same);
  },
});

/* Mean ranks over the main criteria, sorted by their average. */
function rankCard(group) {
  const columns = RANK_COLUMNS.filter((m) => group.metrics[m]);
  const methods = unique(columns.flatMap((m) => group.metrics[m].methods));
  const rank = (m, metric) => {
    const r = group.metrics[metric],
      i = r.methods.indexOf(m);
    return i < 0 ? null : r.rank[i];
  };
  const lines = methods.map((m) => ({ m, ranks: columns.map((c) => rank(m, c)) }));
  lines.forEach((x) => {
    x.average = mean(known(x.ranks));
  });
  lines.sort((a, b) => a.average - b.average);
  const cell = (v, metric) => {
    const k = metric ? group.metrics[metric].methods.length : methods.length;
    return el(
      "td",
      { css: v === null ? {} : heat(1 - (v - 1) / Math.max(1, k - 1)) },
      v === null ? "–" : v.toFixed(1),
    );
  };
  const body = lines.map((x) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, methodName(x.m)),
      cell(x.average),
      x.ranks.map((v, i) => cell(v, columns[i])),
    ),
  );
  const head = columns.map((c) =>
    el("th", { scope: "col" }, tip(METRIC[c].meaning, metricTitle(c))),
  );
  return card(
    `${group.title}: mean ranks`,
    paragraph(
      "1 is best. Methods are ranked within every row, unanswered ones last; ranks are averaged over rows, folds, models and datasets. The first column is the plain average of the others and only sorts the table: how much each criterion matters is yours to decide.",
    ),
    scroller(
      el(
        "table",
        { class: "heat sticky wide" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { class: "text" }, "Method"),
            el("th", { scope: "col" }, "Average"),
            head,
          ),
        ),
        el("tbody", {}, body),
      ),
      "Mean ranks",
    ),
  );
}

function testText(r) {
  const left = r.left_out.length
    ? ` Left out, with values on less than half of the problems: ${r.left_out.map((m) => METHOD[m].title).join(", ")}.`
    : "";
  const alike =
    r.methods.length > 2 && r.problems > 1
      ? "All methods have the same values, so there is nothing to test."
      : "Friedman's test needs three methods and two problems.";
  const friedman =
    r.p === null
      ? alike
      : `Friedman's test that all methods are alike: p ${r.p < 0.001 ? "< 0.001" : `= ${r.p.toFixed(3)}`}.`;
  const possible = r.possible
    ? ""
    : ` With ${r.problems} datasets and ${r.pairs.length} pairs no pair can be significant, however clear; that takes ${r.needed} datasets.`;
  return paragraph(
    `${friedman} Datasets are the units: folds and models are averaged within them. Ranked on ${r.problems} of ${r.of} datasets, those on which every pair was compared.${left}${possible}`,
  );
}

function intervalPlot(node, r) {
  const order = r.methods.map((_, i) => i).reverse();
  plot(
    node,
    [
      {
        x: order.map((i) => r.mean[i]),
        y: order.map((i) => METHOD[r.methods[i]].title),
        mode: "markers",
        type: "scatter",
        error_x: {
          type: "data",
          symmetric: false,
          array: order.map((i) => r.high[i] - r.mean[i]),
          arrayminus: order.map((i) => r.mean[i] - r.low[i]),
          color: css("--muted"),
          thickness: 1.4,
          width: 4,
        },
        marker: { size: 11, color: order.map((i) => colour(r.methods[i])) },
        text: order.map((i) => `${fine(r.low[i])} to ${fine(r.high[i])}`),
        hovertemplate: "<b>%{y}</b> %{x:.4g}<br>95 %: %{text}<extra></extra>",
      },
    ],
    {
      xaxis: { title: { text: metricTitle(BOARD_UI.metric), standoff: 8 } },
      yaxis: { showgrid: false, ticksuffix: "  " },
      margin: { l: 90, r: 18, t: 8, b: 46 },
    },
  );
}

function pairTable(r) {
  const p = r.methods.map(() => r.methods.map(() => null));
  r.pairs.forEach(([a, b, v]) => {
    p[a][b] = v;
    p[b][a] = v;
  });
  const head = r.methods.map((m) => el("th", { scope: "col" }, METHOD[m].title));
  const body = r.methods.map((m, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, methodName(m)),
      p[i].map((v, j) =>
        el("td", { css: v !== null && v < 0.05 ? heat(0.45) : {} }, i === j ? "" : pvalue(v)),
      ),
    ),
  );
  return el(
    "details",
    {},
    el("summary", {}, "Pairwise p-values (Wilcoxon, Holm-corrected)"),
    paragraph("Coloured pairs differ at 5 %. With few problems no pair can."),
    scroller(
      el(
        "table",
        { class: "heat sticky" },
        el("thead", {}, el("tr", {}, el("th", {}), head)),
        el("tbody", {}, body),
      ),
      "Pairwise p-values",
    ),
  );
}
