"use strict";
/* Who answered where: shares of solved rows, what became of the others, and failed cells. */

VIEWS.push({
  id: "coverage",
  title: "Coverage",
  filters: ["paradigm", "model", "dataset"],
  render(root) {
    const chosen = cells();
    if (!chosen.length) {
      root.append(paragraph("No cell passes these filters.", "empty"));
      return;
    }
    const node = plotBox(90 + 30 * methodsOf(chosen).length);
    root.append(
      card(
        "Share of rows solved, in percent",
        paragraph(
          "Verified counterfactuals over explained rows, all folds together. A badge says that some cells have no result; an empty field that the method does not apply.",
        ),
        scroller(coverageTable(chosen), "Share of rows solved per dataset and method"),
      ),
      card(
        "What became of the rows",
        el(
          "ul",
          { class: "legend" },
          Object.entries(STATUS)
            .filter(([s]) => D.values[`rows_${s}`])
            .map(([s, c]) =>
              el(
                "li",
                {},
                el("span", { class: "swatch", css: { "--c": c } }),
                s.replace("_", " "),
              ),
            ),
        ),
        node,
      ),
      failureCard(chosen),
    );
    statusPlot(node, chosen);
  },
});

function statusSum(positions) {
  const sums = {};
  for (const s of Object.keys(STATUS))
    sums[s] = positions.reduce((a, i) => a + (at(`rows_${s}`, i) || 0), 0);
  return sums;
}

function coverageTable(chosen) {
  const methods = methodsOf(chosen),
    groups = new Map();
  for (const i of chosen) {
    const key = `${CELLS.dataset[i]}|${CELLS.method[i]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  const body = datasetsOf(chosen).map((d) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, DATASET[d].title),
      methods.map((m) => coverageCell(d, m, groups.get(`${d}|${m}`))),
    ),
  );
  return el(
    "table",
    { class: "heat sticky wide", id: "coverage-table" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { class: "text" }, "Dataset"),
        methods.map((m) => el("th", { scope: "col" }, METHOD[m].title)),
      ),
    ),
    el("tbody", {}, body),
  );
}

function coverageCell(dataset, method, mine) {
  if (!mine) return el("td", {}, "");
  const sums = statusSum(mine),
    rows = Object.entries(sums).reduce((a, [s, n]) => a + (s === "not_applicable" ? 0 : n), 0);
  const bad = mine.filter((i) => CELLS.state[i] !== "done");
  const parts = Object.entries(sums)
    .filter(([, n]) => n)
    .map(([s, n]) => `${s.replace("_", " ")} ${count(n)}`);
  const text = [
    `${METHOD[method].title} on ${DATASET[dataset].title}: ${parts.join(", ") || "no rows"}.`,
  ];
  unique(bad.map((i) => `${CELLS.state[i]}: ${CELLS.reason[i]}`)).forEach((r) => text.push(r));
  const badge = bad.length
    ? el(
        "span",
        { class: `state ${CELLS.state[bad[0]]}` },
        `${CELLS.state[bad[0]]}${bad.length < mine.length ? ` ${bad.length}/${mine.length}` : ""}`,
      )
    : null;
  const share = rows ? sums.found / rows : null;
  return el(
    "td",
    {
      css: share === null ? {} : share >= 0.5 ? heat(share) : heat(1 - share, "var(--low)"),
      "data-tip": text.join(" "),
      tabindex: "0",
    },
    share === null ? null : percent(share),
    share !== null && badge ? el("br") : null,
    badge,
  );
}

function statusPlot(node, chosen) {
  const methods = methodsOf(chosen).reverse();
  const sums = methods.map((m) => statusSum(chosen.filter((i) => CELLS.method[i] === m)));
  const totals = sums.map((s) => Object.values(s).reduce((a, b) => a + b, 0) || 1);
  const traces = Object.entries(STATUS)
    .filter(([s]) => sums.some((x) => x[s]))
    .map(([s, colour]) => ({
      type: "bar",
      orientation: "h",
      name: s.replace("_", " "),
      y: methods.map((m) => METHOD[m].title),
      x: sums.map((x, i) => (100 * x[s]) / totals[i]),
      customdata: sums.map((x) => x[s]),
      marker: { color: colour },
      hovertemplate: `<b>%{y}</b> ${s.replace("_", " ")}<br>%{x:.1f} %, %{customdata} rows<extra></extra>`,
    }));
  plot(node, traces, {
    barmode: "stack",
    bargap: 0.32,
    xaxis: { title: { text: "% of rows", standoff: 8 }, range: [0, 100] },
    yaxis: { ticksuffix: "  ", showgrid: false },
    margin: { l: 90, r: 18, t: 6, b: 46 },
  });
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
