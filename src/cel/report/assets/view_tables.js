"use strict";
/* The paper's ten tables. */

VIEWS.push({
  id: "tables",
  title: "Tables",
  filters: ["paradigm", "model", "dataset"],
  keys: ["printed", "extra"],
  render(root) {
    root.append(
      el(
        "div",
        { class: "controls" },
        checkbox(
          "printed values beside ours",
          S.printed === "1",
          (v) => set({ printed: v ? "1" : "" }),
          "tables-printed",
        ),
        checkbox(
          "methods that this table of the paper leaves out",
          S.extra === "1",
          (v) => set({ extra: v ? "1" : "" }),
          "tables-extra",
        ),
        searchBox("tables", "Search methods and datasets"),
      ),
    );
    if (S.printed === "1") {
      root.append(
        el(
          "ul",
          { class: "legend" },
          [
            ["--muted", "agrees, within noise only, or a time"],
            ["--good", "differs: ours better"],
            ["--bad", "differs: ours worse, or unexplained"],
            [
              "--warn",
              "explained: an experiment that imitates the suspected cause gives the printed value",
            ],
          ].map(([colour, t]) =>
            el("li", {}, el("span", { class: "swatch", css: { "--c": `var(${colour})` } }), t),
          ),
        ),
      );
      if (D.placebo.length) root.append(placeboCard());
    }
    const tables = D.tables.filter(
      (t) =>
        (S.paradigm === APART || S.paradigm === ALL || t.paradigm === S.paradigm) &&
        (S.model === ALL || t.model === S.model),
    );
    const cards = tables.map(paperTable).filter(Boolean);
    root.append(
      ...(cards.length ? cards : [paragraph("No table has cells for these filters.", "empty")]),
    );
  },
});

/* How often values agree with their printed namesake, and with a method that is none. */
function placeboCard() {
  const share = (v) => (v === null ? "–" : `${(100 * v).toFixed(0)} %`);
  const rows = D.placebo.map((x) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, METHOD[x.method] ? methodName(x.method) : "All"),
      el("td", {}, share(x.right)),
      el("td", {}, share(x.wrong)),
      el("td", {}, count(x.cells)),
    ),
  );
  const head = ["Agrees with its namesake", "Agrees with others (placebo)", "Cells"];
  return card(
    "Agreement and placebo",
    paragraph(
      "A value agrees within two pooled standard errors and within 10 %. Where a method agrees with other printed methods about as often as with its namesake, agreement says nothing. Cells that are 1 on both sides and times are left out.",
    ),
    sheet(
      { class: "sticky", id: "placebo" },
      [el("th", { class: "text" }, "Method"), ...head.map((t) => el("th", { scope: "col" }, t))],
      rows,
      "Agreement and placebo",
    ),
  );
}

function paperTable(t) {
  const words = S.q.toLowerCase().split(/\s+/).filter(Boolean);
  const lines = t.lines.filter(
    (x) =>
      (x.printed || S.extra === "1") &&
      ofKind(x.method) &&
      (S.dataset === ALL || x.dataset === S.dataset) &&
      words.every((w) =>
        `${METHOD[x.method].title} ${DATASET[x.dataset].title}`.toLowerCase().includes(w),
      ),
  );
  if (!lines.length) return null;
  const sizes = blank();
  lines.forEach((x) => {
    sizes[x.dataset] = (sizes[x.dataset] || 0) + 1;
  });
  /* Where every number would be bold, bold tells nothing. */
  const bit = S.extra === "1" ? 1 : 2,
    alike = blank();
  for (const d of Object.keys(sizes)) {
    const mine = lines.filter((x) => x.dataset === d);
    alike[d] = t.metrics.map((_, i) => mine.length > 1 && mine.every((x) => (x.entries[i].best || 0) & bit));
  }
  let last = "";
  const body = lines.map((x) => {
    const first = x.dataset !== last;
    last = x.dataset;
    return el(
      "tr",
      { class: [first ? "group" : "", rowClass(x.method) || ""].join(" ").trim() || null },
      first
        ? el("th", { scope: "rowgroup", rowspan: sizes[x.dataset] }, DATASET[x.dataset].title)
        : null,
      el(
        "th",
        { class: "method", scope: "row" },
        methodName(x.method),
        x.printed ? null : el("span", { class: "tag" }, "not printed"),
      ),
      x.entries.map((e, i) => entryCell(e, alike[x.dataset][i])),
    );
  });
  const head = t.titles.map((title, i) =>
    el(
      "th",
      { scope: "col" },
      tip(METRIC[t.metrics[i]]?.meaning || "", `${title} ${arrow(t.metrics[i])}`),
    ),
  );
  const saved = () =>
    download(
      `${t.name}.csv`,
      toCsv([
        ["Dataset", "Method", ...t.titles.flatMap((x) => [x, `${x} std`])],
        ...lines.map((x) => [x.dataset, x.method, ...x.entries.flatMap((e) => [e.m, e.s])]),
      ]),
      "text/csv",
    );
  return card(
    t.caption,
    el("div", { class: "controls tools" }, action("CSV", saved, `csv-${t.name}`)),
    scroller(
      el(
        "table",
        { class: "wide paper", id: `table-${t.name}` },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { class: "text", scope: "col" }, "Dataset"),
            el("th", { class: "text", scope: "col" }, "Method"),
            head,
          ),
        ),
        el("tbody", {}, body),
      ),
      t.caption,
    ),
  );
}

function entryCell(e, alike) {
  const best = (e.best || 0) & (S.extra === "1" ? 1 : 2) && !alike;
  let value;
  if (e.state && e.state !== "partial")
    value = el(
      "span",
      { class: `state ${e.state}`, "data-tip": e.why || e.state, tabindex: "0" },
      e.state,
    );
  else {
    const text = [shown(e.m, e.s), el("span", { class: "sd" }, spread(e.m, e.s))];
    value = best ? el("b", {}, text) : el("span", {}, text);
  }
  const star = e.state === "partial" ? el("sup", { "data-tip": e.why, tabindex: "0" }, "*") : null;
  const printed =
    S.printed === "1" && e.p !== undefined
      ? el(
          "span",
          {
            class: `printed ${e.verdict}`,
            "data-tip": `${e.verdict}${e.artefact ? `: ${e.artefact}` : ""}`,
          },
          shown(e.p, e.ps) + spread(e.p, e.ps),
        )
      : null;
  return el("td", {}, value, star, printed);
}
