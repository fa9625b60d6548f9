"use strict";
/* The paper's four figures: rows are datasets, columns are metrics, every value is a point. */

VIEWS.push({
  id: "figures",
  title: "Figures",
  filters: ["paradigm", "model", "dataset"],
  keys: ["everything"],
  render(root) {
    root.append(
      paragraph(
        "Each point is one fold and model, the line their median. Times are on a logarithmic scale. Panels in which all values are equal are left out and named.",
      ),
      el(
        "div",
        { class: "controls" },
        checkbox(
          "every dataset and method of the run, not only the paper's selection",
          S.everything === "1",
          (v) => set({ everything: v ? "1" : "" }),
          "figures-everything",
        ),
      ),
    );
    const every = S.paradigm === APART || S.paradigm === ALL;
    const figures = D.figures.filter((f) => every || f.paradigm === S.paradigm);
    const cards = figures.map(figureCard).filter(Boolean);
    root.append(
      ...(cards.length ? cards : [paragraph("No figure has values for these filters.", "empty")]),
    );
  },
});

function figureCard(f) {
  const all = S.everything === "1";
  const methods = (all ? f.all_methods : f.methods).filter(ofKind);
  const pool = all || S.dataset !== ALL ? f.all_datasets : f.datasets;
  const datasets = pool.filter((d) => S.dataset === ALL || d === S.dataset);
  const chosen = cells({ paradigm: f.paradigm });
  if (!datasets.length || !chosen.length || !methods.length) return null;
  return card(
    f.caption,
    el(
      "ul",
      { class: "legend" },
      methods.map((m) => el("li", {}, symbolOf(m), METHOD[m].title)),
    ),
    datasets.map((d) => figureRow(f, d, methods, chosen)),
  );
}

function symbolOf(name) {
  return svg(
    "svg",
    { class: "symbol", width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    marker(METHOD[name].symbol, 0, 0, 5, { fill: colour(name) }),
  );
}

function figureTip(metric, i) {
  const over = overFound(metric) && at("success", i) !== null ? ` over ${covers(at("success", i))}` : "";
  return `${MODEL[CELLS.model[i]].title}, fold ${CELLS.fold[i]}${over}`;
}

function figureRow(f, d, methods, chosen) {
  const constant = [];
  const panels = f.metrics.map((metric) => {
    const groups = methods.map((name) => ({
      name,
      values: chosen
        .filter((i) => CELLS.dataset[i] === d && CELLS.method[i] === name && at(metric, i) !== null)
        .map((i) => ({ v: at(metric, i), tip: figureTip(metric, i) })),
    }));
    const values = groups.flatMap((g) => g.values.map((x) => x.v));
    if (!values.length) return null;
    const low = Math.min(...values),
      high = Math.max(...values);
    if (high - low < 1e-3 * Math.max(Math.abs(high), 1e-3)) {
      constant.push(`${METRIC[metric]?.title || metric} is ${withUnit(metric, low)} everywhere`);
      return null;
    }
    return el(
      "figure",
      {},
      el("figcaption", {}, metricTitle(metric)),
      chartBox(`${f.name}-${d}-${metric}`, ...dotPlot(groups, metric)),
    );
  });
  return el(
    "div",
    { class: "boxrow" },
    el("h3", {}, DATASET[d].title),
    constant.length ? paragraph(`${constant.join("; ")}.`, "muted small") : null,
    el("div", { class: "boxes" }, panels),
  );
}
