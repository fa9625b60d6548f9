"use strict";
/* Is recourse as likely and as cheap for one protected group as for another? */

const MARKS = [
  ["circle", "●"],
  ["diamond", "◆"],
  ["square", "■"],
  ["triangle-up", "▲"],
  ["star", "★"],
  ["x", "✖"],
  ["cross", "✚"],
  ["hexagon", "⬢"],
];
const FAIR = { effectiveness_gap: "Gap in success", cost_gap: "Gap in cost" };

VIEWS.push({
  id: "fairness",
  title: "Fairness",
  filters: ["paradigm", "model", "dataset"],
  render(root) {
    const metrics = Object.keys(FAIR).filter((m) => D.values[m]);
    const chosen = cells().filter((i) => metrics.some((m) => at(m, i) !== null));
    if (!chosen.length) {
      const told = D.datasets.some((d) => d.protected.length)
        ? "No cell of these filters has two protected groups with enough rows."
        : "No dataset of this run declares a protected feature.";
      root.append(card("Fairness of recourse", paragraph(told, "empty")));
      return;
    }
    root.append(
      paragraph(
        "Largest difference between the groups of a protected feature: in the share of people who get a verified answer, and in what it costs them (mean Gower distance). 0 is even-handed.",
        "lead",
      ),
    );
    for (const metric of metrics) {
      const node = plotBox(80 + 34 * methodsOf(chosen).length);
      root.append(
        card(
          `${FAIR[metric]} ↓`,
          paragraph(METRIC[metric]?.meaning || ""),
          markLegend(datasetsOf(chosen)),
          node,
        ),
      );
      gapPlot(node, metric, chosen);
    }
    root.append(groupCard(metrics, chosen));
  },
});

function markLegend(datasets) {
  return el(
    "ul",
    { class: "legend muted" },
    datasets.map((d, n) => el("li", {}, `${MARKS[n % MARKS.length][1]} ${DATASET[d].title}`)),
  );
}

function gapPlot(node, metric, chosen) {
  const methods = methodsOf(chosen).reverse(),
    datasets = datasetsOf(chosen);
  const traces = datasets.map((d, n) => {
    const x = [],
      y = [],
      paint = [],
      text = [];
    for (const m of methods) {
      const v = known(
        chosen
          .filter((i) => CELLS.method[i] === m && CELLS.dataset[i] === d)
          .map((i) => at(metric, i)),
      );
      if (!v.length) continue;
      x.push(mean(v));
      y.push(METHOD[m].title);
      paint.push(colour(m));
      text.push(`${DATASET[d].title}, ${v.length} cells`);
    }
    return {
      x,
      y,
      text,
      name: DATASET[d].title,
      mode: "markers",
      cliponaxis: false,
      marker: {
        size: 11,
        color: paint,
        symbol: MARKS[n % MARKS.length][0],
        line: { width: 1, color: css("--card") },
      },
      hovertemplate: "<b>%{y}</b> %{x:.3g}<br>%{text}<extra></extra>",
    };
  });
  plot(node, traces, {
    xaxis: { rangemode: "tozero", title: { text: FAIR[metric], standoff: 8 } },
    yaxis: {
      ticksuffix: "  ",
      type: "category",
      categoryarray: methods.map((m) => METHOD[m].title),
    },
    margin: { l: 90, r: 18, t: 6, b: 46 },
  });
}

function groupCard(metrics, chosen) {
  const rows = [];
  for (const d of datasetsOf(chosen)) {
    for (const m of methodsOf(chosen)) {
      const mine = chosen.filter((i) => CELLS.dataset[i] === d && CELLS.method[i] === m);
      if (!mine.length) continue;
      rows.push(
        el(
          "tr",
          {},
          el("th", { scope: "row" }, DATASET[d].title),
          el("th", { class: "method" }, methodName(m)),
          metrics.map((k) => [
            el("td", {}, shownFine(mean(known(mine.map((i) => at(k, i)))))),
            el("td", { class: "text wrap small muted" }, why(k, mine[0])),
          ]),
        ),
      );
    }
  }
  const head = [
    el("th", { class: "text", scope: "col" }, "Dataset"),
    el("th", { class: "text", scope: "col" }, "Method"),
    metrics.map((k) => [
      el("th", { scope: "col" }, FAIR[k]),
      el("th", { class: "text", scope: "col" }, "groups, first cell"),
    ]),
  ];
  return card(
    "Groups",
    scroller(
      el(
        "table",
        { class: "wide" },
        el("thead", {}, el("tr", {}, head.flat(2))),
        el("tbody", {}, rows),
      ),
      "Gaps and groups",
    ),
  );
}
function shownFine(v) {
  return v === null ? "–" : v.toFixed(3);
}
