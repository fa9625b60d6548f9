"use strict";
/* Single rows: one row as all methods answer it, or one method on many rows. */

const ROWS_UI = { pair: "", mode: "row", row: 0, method: "", every: false };

VIEWS.push({
  id: "rows",
  title: "Rows",
  filters: ["paradigm", "model", "dataset"],
  render(root, again) {
    const pairs = D.rows.filter(
      (r) =>
        (FILTER.dataset === ALL || r.dataset === FILTER.dataset) &&
        (FILTER.model === ALL || r.model === FILTER.model) &&
        rowMethods(r).length,
    );
    if (!pairs.length) {
      root.append(paragraph("No stored row passes these filters.", "empty"));
      return;
    }
    const key = (r) => `${r.dataset}|${r.model}`;
    const sample = pairs.find((r) => key(r) === ROWS_UI.pair) || pairs[0],
      methods = rowMethods(sample);
    const shownRows = unique(methods.flatMap((m) => sample.methods[m].rows)).sort((a, b) => a - b);
    if (!shownRows.includes(ROWS_UI.row)) ROWS_UI.row = shownRows[0];
    if (!methods.includes(ROWS_UI.method)) ROWS_UI.method = methods[0];
    const set = (name) => (v) => {
      ROWS_UI[name] = name === "row" ? Number(v) : v;
      again();
    };
    const second =
      ROWS_UI.mode === "row"
        ? picker(
            "Row",
            shownRows.map((i) => [i, sample.ids[i]]).map(([i, t]) => [String(i), `row ${t}`]),
            String(ROWS_UI.row),
            set("row"),
          )
        : picker(
            "Method",
            methods.map((m) => [m, METHOD[m].title]),
            ROWS_UI.method,
            set("method"),
          );
    root.append(
      card(
        "Single rows in original units",
        paragraph(
          `The first explained rows of fold ${sample.fold}. New values are coloured; everything else stays as it is.`,
        ),
        el(
          "div",
          { class: "controls" },
          picker(
            "Problem",
            pairs.map((r) => [key(r), `${DATASET[r.dataset].title}, ${MODEL[r.model].title}`]),
            key(sample),
            set("pair"),
          ),
          picker(
            "Show",
            [
              ["row", "one row, all methods"],
              ["method", "one method, many rows"],
            ],
            ROWS_UI.mode,
            set("mode"),
          ),
          second,
          ROWS_UI.mode === "row"
            ? checkbox("unchanged features too", ROWS_UI.every, set("every"))
            : null,
        ),
        ROWS_UI.mode === "row" ? oneRow(sample, methods) : oneMethod(sample),
      ),
    );
  },
});

function rowMethods(sample) {
  return D.methods
    .map((m) => m.name)
    .filter(
      (m) =>
        sample.methods[m] &&
        (FILTER.paradigm === ALL || METHOD[m].paradigms.includes(FILTER.paradigm)),
    );
}
function badge(status) {
  return el(
    "span",
    { class: "badge", css: { "--c": STATUS[status] || "#888" } },
    status.replace("_", " "),
  );
}
const plain = (v) => (v === null ? "–" : String(v));

function oneRow(sample, methods) {
  const row = ROWS_UI.row,
    answers = methods
      .map((m) => {
        const a = sample.methods[m],
          i = a.rows.indexOf(row);
        return i < 0
          ? null
          : {
              m,
              status: a.status[i],
              before: a.before[i],
              target: a.target[i],
              after: a.after[i],
              hidden: a.hidden[i],
              changes: new Map(a.changes[i]),
            };
      })
      .filter(Boolean);
  const touched = new Set(answers.flatMap((a) => [...a.changes.keys()]));
  const features = sample.features
    .map((name, f) => ({ name, f }))
    .filter(({ f }) => ROWS_UI.every || touched.has(f));
  const line = (title, value) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, title),
      el("td", {}, ""),
      answers.map((a) => el("td", {}, value(a))),
    );
  const head = el(
    "tr",
    {},
    el("th", { class: "text", scope: "col" }, `row ${sample.ids[row]}`),
    el("th", { scope: "col" }, "now"),
    answers.map((a) => el("th", { scope: "col" }, methodName(a.m))),
  );
  const body = [
    line("outcome", (a) => badge(a.status)),
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, "prediction"),
      el("td", {}, answers[0]?.before || ""),
      answers.map((a) => el("td", {}, a.after || "–")),
    ),
    line("wanted", (a) => a.target),
    features.map(({ name, f }, n) =>
      el(
        "tr",
        { class: n ? null : "group" },
        el("th", { scope: "row", class: "method" }, name),
        el("td", {}, plain(sample.originals[row][f])),
        answers.map((a) =>
          a.changes.has(f)
            ? el("td", { class: "new" }, plain(a.changes.get(f)))
            : el("td", { class: "same" }, "·"),
        ),
      ),
    ),
    answers.some((a) => a.hidden)
      ? line("further changes", (a) => (a.hidden ? `+ ${a.hidden}` : ""))
      : null,
  ];
  return scroller(
    el(
      "table",
      { class: "sticky", id: "row-table" },
      el("thead", {}, head),
      el("tbody", {}, body),
    ),
    "One row, all methods",
  );
}

function oneMethod(sample) {
  const a = sample.methods[ROWS_UI.method];
  const body = a.rows.map((row, i) =>
    el(
      "tr",
      { class: "group" },
      el("th", { scope: "row", class: "method" }, sample.ids[row]),
      el("td", { class: "text" }, badge(a.status[i])),
      el(
        "td",
        { class: "text" },
        `${a.before[i]} → ${a.after[i] || "–"}`,
        a.after[i] === a.target[i]
          ? null
          : el("span", { class: "muted small" }, ` (wanted ${a.target[i]})`),
      ),
      el(
        "td",
        { class: "text" },
        el(
          "div",
          { class: "chips" },
          a.changes[i].map(([f, v]) =>
            el(
              "span",
              { class: "chip" },
              el("i", {}, `${sample.features[f]} `),
              `${plain(sample.originals[row][f])} → `,
              el("b", {}, plain(v)),
            ),
          ),
          a.hidden[i] ? el("span", { class: "chip" }, `+ ${a.hidden[i]} more`) : null,
        ),
      ),
    ),
  );
  const head = ["Row", "Outcome", "Prediction", "Changes"].map((t) =>
    el("th", { class: "text", scope: "col" }, t),
  );
  return scroller(
    el(
      "table",
      { class: "wide", id: "method-rows" },
      el("thead", {}, el("tr", {}, head)),
      el("tbody", {}, body),
    ),
    "One method, many rows",
  );
}
