"use strict";
/* Who answered where: shares of solved rows, what became of the others, and failed cells. */

VIEWS.push({
  id: "coverage",
  title: "Success",
  filters: ["paradigm", "model", "dataset"],
  render(root) {
    const chosen = cells();
    if (!chosen.length) {
      root.append(paragraph("No cell passes these filters.", "empty"));
      return;
    }
    const lines = methodsOf(chosen).map((name) => ({
      name,
      parts: statusSum(chosen.filter((i) => CELLS.method[i] === name)),
    }));
    root.append(
      card(
        "Share of rows solved, in percent",
        paragraph(
          "Verified counterfactuals over explained rows, all folds together, rounded down: 100 means all. A badge says that some cells have no result; an empty field that the method does not apply.",
        ),
        coverageTable(chosen),
      ),
      card(
        "What became of the rows",
        el(
          "ul",
          { class: "legend" },
          Object.entries(STATUS)
            .filter(([s]) => D.values[`rows_${s}`])
            .map(([s, c]) =>
              el("li", {}, el("span", { class: "swatch", css: { "--c": c } }), s.replace("_", " ")),
            ),
        ),
        chartBox("outcomes", ...barChart(lines, STATUS, "What became of the rows")),
      ),
      ...[proofCard(chosen)].filter(Boolean),
      failureCard(chosen),
    );
  },
});

function statusSum(positions) {
  const sums = {};
  for (const s of Object.keys(STATUS))
    sums[s] = positions.reduce((a, i) => a + (at(`rows_${s}`, i) || 0), 0);
  return sums;
}

/* What is known of rows that needed an answer, for methods that prove something. */
const PROOFS = [
  ["optimal", "least cost, proved"],
  ["within_gap", "nearly least, proved"],
  ["heuristic", "found, not proved"],
  ["infeasible", "proved impossible"],
];

function proofCard(chosen) {
  const proving = chosen.filter((i) => at("rows_optimal", i) !== null);
  if (!proving.length) return null;
  const rows = methodsOf(proving).map((name) => {
    const mine = proving.filter((i) => CELLS.method[i] === name);
    const sum = (word) => mine.reduce((a, i) => a + (at(`rows_${word}`, i) || 0), 0);
    return el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, methodName(name)),
      PROOFS.map(([word]) => el("td", {}, count(sum(word)))),
    );
  });
  const head = ["Method", ...PROOFS.map(([, title]) => title)];
  return card(
    "What is proved",
    paragraph(
      "Rows of methods that say how much is certain. Costs are those of the method itself; a proof speaks of the model and of the constraints as given.",
    ),
    sheet(
      { class: "wide", id: "proofs" },
      head.map((t, k) => el("th", { class: k ? "" : "text", scope: "col" }, t)),
      rows,
      "What is proved",
    ),
  );
}

/* Methods are rows, so that forty of them stay readable. */
function coverageTable(chosen) {
  const groups = new Map();
  for (const i of chosen) {
    const key = `${CELLS.dataset[i]}|${CELLS.method[i]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  const share = (d, m) => {
    const mine = groups.get(`${d}|${m}`);
    if (!mine) return null;
    const sums = statusSum(mine),
      rows = Object.entries(sums).reduce((a, [s, n]) => a + (s === "not_applicable" ? 0 : n), 0);
    return rows ? Math.floor((1000 * sums.found) / rows) / 10 : null;
  };
  const columns = [
    { key: "method", title: "Method", value: (m) => METHOD[m].title, cell: methodName },
    ...datasetsOf(chosen).map((d) => ({
      key: d,
      title: DATASET[d].title,
      better: "higher",
      value: (m) => share(d, m),
      ...coverageCell(d, groups),
    })),
  ];
  return grid({
    id: "coverage-table",
    class: "heat wide",
    columns,
    rows: methodsOf(chosen),
    search: "Search methods",
    label: "Share of rows solved per dataset and method",
    rowClass,
  });
}

function coverageCell(dataset, groups) {
  const look = (method) => {
    const mine = groups.get(`${dataset}|${method}`);
    if (!mine) return null;
    const sums = statusSum(mine),
      rows = Object.entries(sums).reduce((a, [s, n]) => a + (s === "not_applicable" ? 0 : n), 0);
    const bad = mine.filter((i) => CELLS.state[i] !== "done");
    return { mine, sums, bad, share: rows ? sums.found / rows : null };
  };
  return {
    css: (method) => {
      const x = look(method);
      if (!x || x.share === null) return {};
      return x.share >= 0.5 ? heat(x.share) : heat(1 - x.share, "var(--low)");
    },
    about: (method) => {
      const x = look(method);
      if (!x) return null;
      const parts = Object.entries(x.sums)
        .filter(([, n]) => n)
        .map(([s, n]) => `${s.replace("_", " ")} ${count(n)}`);
      const reasons = unique(x.bad.map((i) => `${CELLS.state[i]}: ${CELLS.reason[i]}`));
      return `${METHOD[method].title} on ${DATASET[dataset].title}: ${parts.join(", ") || "no rows"}. ${reasons.join(" ")}`;
    },
    cell: (method) => {
      const x = look(method);
      if (!x) return "";
      const state = x.bad.length ? CELLS.state[x.bad[0]] : "";
      const some = x.bad.length < x.mine.length ? ` ${x.bad.length}/${x.mine.length}` : "";
      const badge = state ? el("span", { class: `state ${state}` }, `${state}${some}`) : null;
      return [x.share === null ? null : percent(x.share), x.share !== null && badge ? el("br") : null, badge];
    },
  };
}

function failureCard(chosen) {
  const bad = chosen.filter((i) => CELLS.state[i] !== "done"),
    groups = new Map();
  for (const i of bad) {
    const key = `${CELLS.state[i]}|${CELLS.method[i]}|${CELLS.reason[i]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  if (!bad.length)
    return card(
      "Cells without a result",
      paragraph("There is none: every cell of these filters has scores."),
    );
  const rows = [...groups.values()]
    .slice(0, 400)
    .map((mine) =>
      el(
        "tr",
        {},
        el(
          "td",
          { class: "text" },
          el("span", { class: `state ${CELLS.state[mine[0]]}` }, CELLS.state[mine[0]]),
        ),
        el("th", { scope: "row", class: "method" }, methodName(CELLS.method[mine[0]])),
        el("td", {}, String(mine.length)),
        el(
          "td",
          { class: "text wrap" },
          unique(
            mine.map((i) => `${DATASET[CELLS.dataset[i]].title} (${MODEL[CELLS.model[i]].title})`),
          ).join(", "),
        ),
        el("td", { class: "text wrap" }, CELLS.reason[mine[0]] || "not computed yet"),
      ),
    );
  const head = [
    ["State", "text"],
    ["Method", "text"],
    ["Cells", ""],
    ["Where", "text"],
    ["Reason", "text"],
  ];
  return card(
    `Cells without a result: ${count(bad.length)}`,
    sheet(
      { class: "wide", id: "failures" },
      head.map(([t, c]) => el("th", { class: c, scope: "col" }, t)),
      rows,
      "Cells without a result",
    ),
  );
}
