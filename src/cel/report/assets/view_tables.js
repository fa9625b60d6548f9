"use strict";
/* The paper's ten tables. */

const TABLES_UI = { paper: false, extra: false };

VIEWS.push({
  id: "tables",
  title: "Tables",
  filters: ["paradigm", "model", "dataset"],
  render(root, again) {
    root.append(
      el(
        "div",
        { class: "controls" },
        checkbox("printed values beside ours", TABLES_UI.paper, (v) => {
          TABLES_UI.paper = v;
          again();
        }),
        checkbox("methods that this table of the paper leaves out", TABLES_UI.extra, (v) => {
          TABLES_UI.extra = v;
          again();
        }),
      ),
    );
    if (TABLES_UI.paper) {
      root.append(
        el(
          "ul",
          { class: "legend" },
          [
            "equal within noise",
            "better",
            "worse",
            "artefact: the printed value is known to be one",
          ].map((t) =>
            el(
              "li",
              {},
              el("span", {
                class: "swatch",
                css: {
                  "--c":
                    { b: "var(--good)", w: "var(--bad)", a: "var(--warn)" }[t[0]] ||
                    "var(--muted)",
                },
              }),
              t,
            ),
          ),
        ),
      );
    }
    const tables = D.tables.filter(
      (t) =>
        (FILTER.paradigm === ALL || t.paradigm === FILTER.paradigm) &&
        (FILTER.model === ALL || t.model === FILTER.model),
    );
    const cards = tables.map(paperTable).filter(Boolean);
    root.append(
      ...(cards.length ? cards : [paragraph("No table has cells for these filters.", "empty")]),
    );
  },
});

function paperTable(t) {
  const lines = t.lines.filter(
    (x) =>
      (x.printed || TABLES_UI.extra) && (FILTER.dataset === ALL || x.dataset === FILTER.dataset),
  );
  if (!lines.length) return null;
  const sizes = {};
  lines.forEach((x) => {
    sizes[x.dataset] = (sizes[x.dataset] || 0) + 1;
  });
  let last = "";
  const body = lines.map((x) => {
    const first = x.dataset !== last;
    last = x.dataset;
    return el(
      "tr",
      { class: first ? "group" : null },
      first
        ? el("th", { scope: "rowgroup", rowspan: sizes[x.dataset] }, DATASET[x.dataset].title)
        : null,
      el(
        "th",
        { class: "method", scope: "row" },
        methodName(x.method),
        x.printed ? null : el("span", { class: "tag" }, "not printed"),
      ),
      x.entries.map(entryCell),
    );
  });
  const head = t.titles.map((title, i) =>
    el(
      "th",
      { scope: "col" },
      tip(METRIC[t.metrics[i]]?.meaning || "", `${title} ${arrow(t.metrics[i])}`),
    ),
  );
  return card(
    t.caption,
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

function entryCell(e) {
  const best = (e.best || 0) & (TABLES_UI.extra ? 1 : 2);
  let value;
  if (e.state && e.state !== "partial")
    value = el(
      "span",
      { class: `state ${e.state}`, "data-tip": e.why || e.state, tabindex: "0" },
      e.state,
    );
  else {
    const text = [shown(e.m), el("span", { class: "sd" }, spread(e.m, e.s))];
    value = best ? el("b", {}, text) : el("span", {}, text);
  }
  const star = e.state === "partial" ? el("sup", { "data-tip": e.why, tabindex: "0" }, "*") : null;
  const printed =
    TABLES_UI.paper && e.p !== undefined
      ? el(
          "span",
          {
            class: `printed ${e.verdict}`,
            "data-tip": `${e.verdict}${e.artefact ? `: ${e.artefact}` : ""}`,
          },
          shown(e.p) + spread(e.p, e.ps),
        )
      : null;
  return el("td", {}, value, star, printed);
}
