"use strict";
/* Who beats whom how often, and distances on the same rows for everybody. */

VIEWS.push({
  id: "wins",
  title: "Win rates",
  filters: ["paradigm", "model"],
  render(root, again) {
    const group = rankedGroup(),
      there = boardMetric(group);
    if (!there.length) {
      root.append(nothingRanked(group));
      return;
    }
    root.append(
      card(
        `${group.title}: how often the row beats the column`,
        metricPicker(there, again),
        paragraph(
          "Share of problems in which the method of the row has the better value. Ties count half; a method without a value loses to one that has one.",
        ),
        scroller(winTable(group.metrics[BOARD_UI.metric]), "Win rates"),
      ),
    );
  },
});

function winTable(r) {
  const head = r.win_methods.map((m) => el("th", { scope: "col" }, METHOD[m].title));
  const body = r.win_methods.map((m, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, methodName(m)),
      r.wins[i].map((v, j) =>
        el(
          "td",
          {
            css:
              v === null
                ? {}
                : heat(Math.abs(v - 0.5) * 1.8, v >= 0.5 ? "var(--accent)" : "var(--low)"),
            "data-tip":
              v === null
                ? null
                : `${METHOD[m].title} against ${METHOD[r.win_methods[j]].title}: ${Math.round(100 * v)} %`,
          },
          v === null ? "" : String(Math.round(100 * v)),
        ),
      ),
    ),
  );
  return el(
    "table",
    { class: "heat sticky wide", id: "win-table" },
    el("thead", {}, el("tr", {}, el("th", { class: "text" }, "%"), head)),
    el("tbody", {}, body),
  );
}

/* Distances on the rows that all methods solved, averaged over problems. */
function commonCard(group) {
  const rows = D.common.filter(
    (c) =>
      (group.paradigm === ALL ? c.paradigm !== "regression" : c.paradigm === group.paradigm) &&
      (FILTER.model === ALL || c.model === FILTER.model) &&
      c.gower !== null,
  );
  if (!rows.length) return null;
  const body = D.methods
    .map((m) => m.name)
    .map((m) => [m, rows.filter((c) => c.method === m)])
    .filter(([, mine]) => mine.length)
    .map(([m, mine]) => {
      const of = (name) => mean(known(mine.map((c) => c[name])));
      return el(
        "tr",
        {},
        el("th", { scope: "row", class: "method" }, methodName(m)),
        [of("gower_own"), of("gower"), of("sparsity_own"), of("sparsity")].map((v) =>
          el("td", {}, v === null ? "–" : v.toFixed(3)),
        ),
        el("td", {}, count(mine.reduce((a, c) => a + c.own, 0))),
        el("td", {}, count(mine.reduce((a, c) => a + c.common, 0))),
      );
    });
  const head = [
    "Gower ↓ own rows",
    "Gower ↓ common rows",
    "Sparsity ↓ own rows",
    "Sparsity ↓ common rows",
    "Rows solved",
    "Common rows",
  ];
  return card(
    "The same rows for everybody",
    paragraph(
      "A method that solves only easy rows looks close on its own rows. Here distances are also taken on the rows that all methods of the paradigm solved, where each of them solved at least half.",
    ),
    sheet(
      { class: "sticky" },
      [el("th", { class: "text" }, "Method"), ...head.map((t) => el("th", { scope: "col" }, t))],
      body,
      "Distances on common rows",
    ),
  );
}
