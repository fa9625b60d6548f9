"use strict";
/* Single rows: one row as all methods answer it, or one method on many rows. */

VIEWS.push({
  id: "rows",
  title: "Rows",
  filters: ["paradigm", "model", "dataset"],
  keys: ["problem", "show", "row", "method", "every"],
  render(root) {
    const pairs = D.rows
      .filter(
        (r) =>
          (S.dataset === ALL || r.dataset === S.dataset) &&
          (S.model === ALL || r.model === S.model) &&
          rowMethods(r).length,
      )
      .sort((a, b) => peopleFirst(a) - peopleFirst(b));
    if (!pairs.length) {
      const told = D.rows.length
        ? "No stored row passes these filters."
        : "Shipped scores come without single rows; run the suite to see people.";
      root.append(paragraph(told, "empty"));
      return;
    }
    const key = (r) => `${r.dataset}|${r.model}`;
    const sample = pairs.find((r) => key(r) === S.problem) || pairs[0],
      methods = rowMethods(sample);
    const rows = unique(methods.flatMap((m) => sample.methods[m].rows)).sort((a, b) => a - b);
    const row = rows.includes(Number(S.row)) && S.row !== "" ? Number(S.row) : rows[0];
    const method = methods.includes(S.method) ? S.method : methods[0];
    const byRow = S.show !== "method";
    const second = byRow
      ? picker(
          "Row",
          rows.map((i) => [String(i), `row ${sample.ids[i]}`]),
          String(row),
          (v) => set({ row: v }),
          "rows-row",
        )
      : picker(
          "Method",
          methods.map((m) => [m, METHOD[m].title]),
          method,
          (v) => set({ method: v }),
          "rows-method",
        );
    root.append(
      card(
        "Single rows in original units",
        paragraph(
          `The first explained rows of fold ${sample.fold}. New values are coloured; a dot means unchanged.`,
        ),
        el(
          "div",
          { class: "controls" },
          picker(
            "Problem",
            pairs.map((r) => [key(r), `${DATASET[r.dataset].title}, ${MODEL[r.model].title}`]),
            key(sample),
            (v) => set({ problem: v, row: "" }),
            "rows-problem",
          ),
          picker(
            "Show",
            [
              ["row", "one row, all methods"],
              ["method", "one method, many rows"],
            ],
            byRow ? "row" : "method",
            (v) => set({ show: v }),
            "rows-show",
          ),
          second,
          byRow
            ? checkbox("unchanged features too", S.every === "1", (v) => set({ every: v ? "1" : "" }), "rows-every")
            : null,
        ),
        sample.boundary ? planePart(sample, methods, row, byRow ? null : method) : null,
        byRow ? oneRow(sample, methods, row) : oneMethod(sample, method),
      ),
    );
  },
});

function planePart(sample, methods, row, only) {
  const name = `plane-${sample.dataset}-${sample.model}`;
  return [
    chartBox(name, narrow() ? 340 : 430, planeChart(sample, methods, row, only)),
    paragraph(
      "What the model predicts where, on a grid; the ring is the row, the symbols are its counterfactuals.",
      "muted small",
    ),
  ];
}

/* Datasets with categories are about people or things; coordinates come last. */
const peopleFirst = (r) => (DATASET[r.dataset].labels > 0 ? 0 : r.features.length > 2 ? 1 : 2);

function rowMethods(sample) {
  const every = S.paradigm === ALL || S.paradigm === APART;
  return D.methods
    .map((m) => m.name)
    .filter((m) => sample.methods[m] && ofKind(m) && (every || METHOD[m].paradigms.includes(S.paradigm)));
}
function badge(status) {
  return el(
    "span",
    { class: "badge", css: { "--c": STATUS[status] || "#888" } },
    status.replace("_", " "),
  );
}
const plain = (v) =>
  v === null ? "–" : typeof v === "number" && !Number.isInteger(v) ? fine(v) : String(v);

/* Methods are lines and features are columns: many methods stay readable. */
function oneRow(sample, methods, row) {
  const answers = methods
    .map((name) => {
      const a = sample.methods[name],
        i = a.rows.indexOf(row);
      if (i < 0) return null;
      return {
        name,
        status: a.status[i],
        before: a.before[i],
        target: a.target[i],
        after: a.after[i],
        hidden: a.hidden[i],
        changes: new Map(a.changes[i]),
      };
    })
    .filter(Boolean);
  const often = new Map();
  for (const a of answers) for (const f of a.changes.keys()) often.set(f, (often.get(f) || 0) + 1);
  const features = sample.features
    .map((name, f) => ({ name, f }))
    .filter(({ f }) => S.every === "1" || often.has(f))
    .sort((a, b) => (often.get(b.f) || 0) - (often.get(a.f) || 0));
  const wanted = unique(answers.map((a) => a.target)).join(", ");
  const now = { now: true, changes: new Map() };
  const columns = [
    {
      key: "method",
      title: "Method",
      value: (a) => (a.now ? "" : METHOD[a.name].title),
      cell: (a) => (a.now ? el("b", {}, "now") : methodName(a.name)),
    },
    {
      key: "outcome",
      title: "Outcome",
      text: true,
      value: (a) => (a.now ? "" : a.status),
      cell: (a) => (a.now ? "" : badge(a.status)),
    },
    {
      key: "prediction",
      title: "Prediction",
      text: true,
      value: (a) => (a.now ? answers[0]?.before || "" : a.after || "–"),
    },
    {
      key: "changed",
      title: "Changes",
      value: (a) => (a.now ? null : a.changes.size + a.hidden),
      cell: (a) => (a.now ? "" : a.changes.size + a.hidden ? String(a.changes.size + a.hidden) : "–"),
    },
    ...features.map(({ name, f }) => ({
      key: name,
      title: name,
      value: (a) => (a.now ? sample.originals[row][f] : (a.changes.get(f) ?? null)),
      cell: (a) =>
        a.now
          ? plain(sample.originals[row][f])
          : a.changes.has(f)
            ? el("span", { class: "new" }, plain(a.changes.get(f)))
            : el("span", { class: "same" }, "·"),
    })),
  ];
  return el(
    "div",
    {},
    paragraph(`Row ${sample.ids[row]}: predicted ${answers[0]?.before || "?"}, wanted ${wanted}.`, ""),
    grid({
      id: "row-table",
      columns,
      rows: [now, ...answers],
      search: "Search methods",
      pin: (a) => a.now,
      label: "One row, all methods",
      rowClass: (a) => (a.now ? "now" : rowClass(a.name)),
    }),
  );
}

function oneMethod(sample, method) {
  const a = sample.methods[method];
  const rows = a.rows.map((row, i) => ({ row, i }));
  const chips = ({ row, i }) =>
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
    );
  const columns = [
    { key: "row", title: "Row", value: (x) => sample.ids[x.row] },
    { key: "outcome", title: "Outcome", text: true, value: (x) => a.status[x.i], cell: (x) => badge(a.status[x.i]) },
    {
      key: "prediction",
      title: "Prediction",
      text: true,
      value: (x) => `${a.before[x.i]} → ${a.after[x.i] || "–"}`,
      cell: (x) => [
        `${a.before[x.i]} → ${a.after[x.i] || "–"}`,
        a.after[x.i] === a.target[x.i] ? null : el("span", { class: "muted small" }, ` (wanted ${a.target[x.i]})`),
      ],
    },
    {
      key: "changes",
      title: "Changes",
      text: true,
      value: (x) =>
        a.changes[x.i].map(([f, v]) => `${sample.features[f]} ${plain(sample.originals[x.row][f])} → ${plain(v)}`).join("; "),
      cell: chips,
    },
  ];
  return grid({ id: "method-rows", columns, rows, search: "Search rows", label: "One method, many rows" });
}

/* The plane with the model's decisions; one row with all methods, or one method with all rows. */
function planeChart(sample, methods, row, only) {
  const b = sample.boundary;
  return (width, height) => {
    const left = 56,
      right = 150,
      bottom = 44,
      top = 10,
      w = width - left - (width < 520 ? 12 : right),
      h = height - top - bottom;
    const X = (v) => left + ((v - b.x[0]) / (b.x[1] - b.x[0])) * w,
      Y = (v) => top + h - ((v - b.y[0]) / (b.y[1] - b.y[0])) * h;
    const chart = svg("svg", {
      class: "chart",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `What the model predicts over ${sample.features.join(" and ")}, with the row and its counterfactuals`,
    });
    const tints = ["var(--plane0)", "var(--plane1)", "var(--plane2)", "var(--plane3)"];
    const cw = w / b.size,
      ch = h / b.size;
    for (let j = 0; j < b.size; j++)
      for (let i = 0, start = 0; i <= b.size; i++) {
        const here = b.cells[j * b.size + i],
          first = b.cells[j * b.size + start];
        if (i < b.size && here === first) continue;
        chart.append(
          svg("rect", {
            x: left + start * cw,
            y: top + h - (j + 1) * ch - 0.3,
            width: (i - start) * cw + 0.3,
            height: ch + 0.6,
            css: { fill: tints[parseInt(first, 36) % tints.length] },
          }),
        );
        start = i;
      }
    for (const t of ticks(b.x[0], b.x[1], 5))
      chart.append(svg("text", { x: X(t), y: top + h + 16, "text-anchor": "middle" }, tickText(t)));
    for (const t of ticks(b.y[0], b.y[1], 5))
      chart.append(svg("text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, tickText(t)));
    chart.append(
      svg("text", { class: "strong", x: left + w / 2, y: height - 8, "text-anchor": "middle" }, sample.features[0]),
      svg("text", { class: "strong", x: 14, y: top + h / 2, transform: `rotate(-90 14 ${top + h / 2})`, "text-anchor": "middle" }, sample.features[1]),
    );
    const shown = only ? [only] : methods;
    const from = new Set();
    for (const name of shown) {
      const a = sample.methods[name];
      a.rows.forEach((r, i) => {
        if (!only && r !== row) return;
        const before = sample.originals[r];
        if (!from.has(r)) {
          from.add(r);
          chart.append(svg("circle", { cx: X(before[0]), cy: Y(before[1]), r: only ? 4 : 8, class: "origin" }));
        }
        if (!a.after[i]) return;
        const moved = new Map(a.changes[i]);
        const after = [0, 1].map((f) => (moved.has(f) ? moved.get(f) : before[f]));
        chart.append(
          svg("line", { class: "leader", x1: X(before[0]), y1: Y(before[1]), x2: X(after[0]), y2: Y(after[1]) }),
          marker(METHOD[name].symbol, X(after[0]), Y(after[1]), 5, {
            fill: colour(name),
            stroke: css("--card"),
            "data-tip": `${METHOD[name].title}: ${sample.features[0]} ${plain(after[0])}, ${sample.features[1]} ${plain(after[1])}, ${a.status[i].replace("_", " ")}`,
          }),
        );
      });
    }
    if (width >= 520)
      planeLegend(chart, b, tints, shown, width - right + 14, [top, height]);
    return chart;
  };
}
function planeLegend(chart, b, tints, methods, x, [top, height]) {
  b.classes.forEach((c, i) =>
    chart.append(
      svg("rect", { x, y: top + 20 * i, width: 13, height: 13, css: { fill: tints[i % tints.length] } }),
      svg("text", { x: x + 19, y: top + 11 + 20 * i }, clipped(`predicts ${c}`, 112, 12)),
    ),
  );
  const from = top + 20 * b.classes.length + 14;
  methods.slice(0, Math.floor((height - from) / 20)).forEach((m, i) =>
    chart.append(
      marker(METHOD[m].symbol, x + 6, from + 20 * i, 5, { fill: colour(m) }),
      svg("text", { x: x + 19, y: from + 4 + 20 * i }, clipped(METHOD[m].title, 112, 12)),
    ),
  );
}
