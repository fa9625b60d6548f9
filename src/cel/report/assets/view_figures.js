"use strict";
/* The paper's four figures: rows are datasets, columns are metrics, boxes are methods. */

const FIGURES_UI = { everything: false };

VIEWS.push({
  id: "figures",
  title: "Figures",
  filters: ["paradigm", "model", "dataset"],
  render(root, again) {
    root.append(
      paragraph(
        "Each box holds the values of all folds and models: median, quartiles, whiskers to 1.5 times their distance. Times are on a logarithmic scale.",
      ),
      el(
        "div",
        { class: "controls" },
        checkbox(
          "every dataset and method of the run, not only the paper's selection",
          FIGURES_UI.everything,
          (v) => {
            FIGURES_UI.everything = v;
            again();
          },
        ),
      ),
    );
    const figures = D.figures.filter(
      (f) => FILTER.paradigm === ALL || f.paradigm === FILTER.paradigm,
    );
    const cards = figures.map(figureCard).filter(Boolean);
    root.append(
      ...(cards.length ? cards : [paragraph("No figure has values for these filters.", "empty")]),
    );
  },
});

function figureCard(f) {
  const methods = FIGURES_UI.everything ? f.all_methods : f.methods;
  const pool = FIGURES_UI.everything || FILTER.dataset !== ALL ? f.all_datasets : f.datasets;
  const datasets = pool.filter((d) => FILTER.dataset === ALL || d === FILTER.dataset);
  if (!datasets.length) return null;
  const chosen = cells({ paradigm: f.paradigm });
  if (!chosen.length) return null;
  const rows = datasets.map((d) =>
    el(
      "div",
      { class: "boxrow" },
      el("h3", {}, DATASET[d].title),
      el(
        "div",
        { class: "boxes" },
        f.metrics.map((metric) => {
          const groups = methods.map((name) => ({
            name,
            values: known(
              chosen
                .filter((i) => CELLS.dataset[i] === d && CELLS.method[i] === name)
                .map((i) => at(metric, i)),
            ),
          }));
          return el(
            "figure",
            {},
            el("figcaption", {}, metricTitle(metric)),
            boxPlot(groups, metric),
          );
        }),
      ),
    ),
  );
  return card(
    f.caption,
    el(
      "ul",
      { class: "legend" },
      methods.map((m) => el("li", {}, methodName(m))),
    ),
    rows,
  );
}
