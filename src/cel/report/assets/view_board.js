"use strict";
/* Leaderboard: criteria and weights of the reader's choice, then one criterion in depth. */

/* One criterion per question: does it help, is it near, is it sparse, is it plausible? */
const CRITERIA = ["success", "mae", "l2_hamming", "sparsity", "density_percentile"];

function weightsOf() {
  const given = unpack(S.weights);
  const out = {};
  for (const m of D.metrics.filter((x) => x.better !== "none").map((x) => x.name)) {
    const usual = CRITERIA.includes(m) ? 1 : 0;
    const w = m in given ? Number(given[m]) : usual;
    if (w > 0) out[m] = w;
  }
  return out;
}

/* Methods of a paradigm with their ranks, sorted by the weighted mean of them. */
function boardLines(paradigm) {
  const weights = weightsOf();
  const criteria = Object.keys(weights).filter((m) => rankingOf(paradigm, m));
  const lines = new Map();
  for (const c of criteria) {
    const r = rankingOf(paradigm, c);
    r.methods.forEach((name, i) => {
      if (!lines.has(name)) lines.set(name, { name, ranks: {}, values: {} });
      lines.get(name).ranks[c] = r.rank[i];
      lines.get(name).values[c] = r.mean[i];
    });
  }
  for (const x of lines.values()) {
    const there = criteria.filter((c) => c in x.ranks);
    const total = there.reduce((a, c) => a + weights[c], 0);
    x.average = there.reduce((a, c) => a + weights[c] * x.ranks[c], 0) / total;
  }
  return { criteria, lines: [...lines.values()].sort((a, b) => a.average - b.average) };
}

VIEWS.push({
  id: "leaderboard",
  title: "Leaderboard",
  filters: ["paradigm", "model"],
  keys: ["metric", "weights"],
  render(root) {
    root.append(weightCard());
    const groups = rankedGroups().filter((p) => boardLines(p).lines.length);
    if (!groups.length) {
      root.append(nothingRanked());
      return;
    }
    for (const p of groups) root.append(rankCard(p));
    const main = groups.includes(mainParadigm()) ? mainParadigm() : groups[0];
    root.append(depthCard(main));
    const same = commonCard(groups);
    if (same) root.append(same);
  },
});

function nothingRanked() {
  return card(
    "Nothing to rank",
    paragraph("Ranks need two methods with values on a common problem; these filters leave none.", "empty"),
  );
}

function weightCard() {
  const weights = weightsOf();
  const pickable = D.metrics.filter((m) => m.better !== "none").map((m) => m.name);
  const change = (name) => (v) => {
    const usual = CRITERIA.includes(name) ? "1" : "0";
    const next = { ...unpack(S.weights), [name]: v === usual ? "" : v };
    set({ weights: pack(next) });
  };
  const options = ["0", "1", "2", "3", "5"].map((v) => [v, v === "0" ? "not counted" : `× ${v}`]);
  const row = (m) =>
    el(
      "div",
      { class: `weight${weights[m] ? " on" : ""}` },
      picker(metricTitle(m), options, String(weights[m] || 0), change(m), `weight-${m}`),
    );
  const chosen = Object.entries(weights).map(([m, w]) => `${METRIC[m].title}${w === 1 ? "" : ` × ${w}`}`);
  return el(
    "details",
    {
      class: "card",
      id: "weights",
      open: OPEN_MENUS.has("weights"),
      on: { toggle: (e) => rememberMenu(e.target) },
    },
    el("summary", { id: "weights-summary" }, `Criteria: ${chosen.join(", ")}`),
    paragraph(
      "How much each criterion counts in the average rank. Every metric of the run can count, also one of your own. Wall-clock times depend on the machine and its load, so they do not count unless you say so.",
    ),
    el("div", { class: "weights" }, pickable.map(row)),
    S.weights ? action("Usual criteria", () => set({ weights: "" }), "weights-reset") : null,
  );
}

function rankCard(paradigm) {
  const board = boardLines(paradigm),
    criteria = board.criteria,
    lines = board.lines.filter((x) => ofKind(x.name));
  const columns = [
    { key: "method", title: "Method", value: (x) => METHOD[x.name].title, cell: (x) => methodName(x.name) },
    {
      key: "kind",
      title: "Kind",
      tip: "How the method finds its answers. Sort by it to see methods of one kind together, or search for one.",
      text: true,
      value: (x) => METHOD[x.name].kind,
    },
    {
      key: "average",
      title: "Average rank ↓",
      tip: "Weighted mean of the ranks; 1 is best.",
      value: (x) => Number(x.average.toFixed(3)),
      cell: (x) => x.average.toFixed(2),
      css: (x) => heat(1 - (x.average - 1) / Math.max(1, board.lines.length - 1)),
    },
    ...(criteria.includes("success") ? [] : [shareColumn((x) => foundShare(x.name, paradigm))]),
    ...criteria.map((c) => {
      const r = rankingOf(paradigm, c),
        k = r.methods.length,
        flat = !separates(r);
      return {
        key: c,
        title: metricTitle(c),
        tip: `${METRIC[c].meaning}${flat ? " All methods are alike here." : ""}`,
        value: (x) => (c in x.ranks ? Number(x.ranks[c].toFixed(3)) : null),
        cell: (x) =>
          c in x.ranks
            ? [
                flat ? el("span", { class: "muted" }, "tie") : x.ranks[c].toFixed(1),
                el("span", { class: "small value" }, withUnit(c, x.values[c])),
              ]
            : "–",
        css: (x) => (c in x.ranks && !flat ? heat(1 - (x.ranks[c] - 1) / Math.max(1, k - 1)) : {}),
      };
    }),
  ];
  const own = S.paradigm === APART ? " Each paradigm is ranked for itself: they answer different questions." : "";
  return card(
    `${groupTitle(paradigm)}: mean ranks`,
    paragraph(
      `1 is best; below each rank the mean value, for distances, sparsity and plausibility over the rows that were answered, whose share is ${criteria.includes("success") ? "Success" : "in column Rows"}. Sort by any column.${own} A tie: the criterion does not tell these methods apart.`,
    ),
    grid({
      id: `board-${paradigm}`,
      class: `heat wide${lines.length > MANY ? " dense" : ""}`,
      columns,
      rows: lines,
      order: "average up",
      search: "Search methods and kinds",
      label: `Mean ranks of ${groupTitle(paradigm)}`,
      rowClass: (x) => rowClass(x.name),
    }),
  );
}

/* The criterion that is shown in depth: the chosen one, or the first that separates. */
function depthMetric(paradigm) {
  const there = rankable(paradigm);
  if (there.includes(S.metric)) return { there, metric: S.metric };
  const wanted = ["l2_hamming", "gower", "sparsity", "density_percentile", ...there];
  const metric = wanted.find((m) => there.includes(m) && separates(rankingOf(paradigm, m)));
  return { there, metric: metric || there[0] };
}

function depthCard(paradigm) {
  const { there, metric } = depthMetric(paradigm);
  if (!metric) return nothingRanked();
  const r = rankingOf(paradigm, metric);
  const lines = r.methods.map((name, i) => ({
    name,
    value: r.mean[i],
    low: r.low[i],
    high: r.high[i],
    share: overFound(metric) ? foundShare(name, paradigm) : null,
    tip: `${METHOD[name].title}: ${withUnit(metric, r.mean[i])}, 95 %: ${fine(r.low[i])} to ${fine(r.high[i])}`,
  }));
  const means = intervalChart(
    lines.filter((l) => l.value !== null),
    metric,
    metricTitle(metric),
  );
  const diagram = rankDiagram(r);
  const unit = r.unit || (r.plain ? "dataset" : "problem");
  return card(
    `${groupTitle(paradigm)} by ${METRIC[metric].title}`,
    el(
      "div",
      { class: "controls" },
      picker("Criterion", there.map((m) => [m, metricTitle(m)]), metric, (v) => set({ metric: v }), "board-metric"),
      el("span", { class: "muted small" }, METRIC[metric].meaning),
    ),
    testText(r, unit),
    el("h3", {}, r.difference ? "Mean ranks and critical difference" : "Mean ranks"),
    chartBox(`ranks-${paradigm}-${metric}`, ...diagram),
    el("h3", {}, `Means with 95 % bootstrap intervals over ${unit}s`),
    chartBox(`means-${paradigm}-${metric}`, ...means),
    r.wins ? winDetails(r) : null,
    r.pairs ? pairTable(r) : null,
  );
}

function testText(r, unit) {
  const left = r.left_out.length
    ? ` Left out, with values on less than half of the ${unit}s: ${r.left_out.map((m) => METHOD[m].title).join(", ")}.`
    : "";
  const over = `Ranked on ${r.problems} of ${r.of} ${unit}s, those on which every ranked method has a value.`;
  if (r.plain)
    return paragraph(`${over}${left} This metric has no values for single rows, so its means are ranked; no test is made.`);
  const alike =
    r.methods.length > 2 && r.problems > 1
      ? "All methods have the same values, so there is nothing to test."
      : `Friedman's test needs three methods and two ${unit}s.`;
  const friedman =
    r.p === null || r.p === undefined
      ? alike
      : `Friedman's test that all methods are alike: p ${r.p < 0.001 ? "< 0.001" : `= ${r.p.toFixed(3)}`}.`;
  const possible =
    r.possible === false
      ? ` With ${r.problems} ${unit}s no pair can be significant after correction${r.needed ? `; that takes ${r.needed}` : ""}.`
      : "";
  return paragraph(`${friedman} ${over}${left}${possible}`);
}

function winDetails(r) {
  const methods = r.win_methods || r.methods;
  const head = methods.map((m) => el("th", { scope: "col" }, METHOD[m].title));
  const body = methods.map((m, i) =>
    el(
      "tr",
      { class: rowClass(m) },
      el("th", { scope: "row", class: "method" }, methodName(m)),
      r.wins[i].map((v, j) =>
        el(
          "td",
          {
            css: v === null || i === j ? {} : heat(Math.abs(v - 0.5) * 1.8, v >= 0.5 ? "var(--accent)" : "var(--low)"),
            "data-tip": v === null || i === j ? null : `${METHOD[m].title} against ${METHOD[methods[j]].title}: ${Math.round(100 * v)} %`,
          },
          v === null || i === j ? "" : String(Math.round(100 * v)),
        ),
      ),
    ),
  );
  return el(
    "details",
    { id: "wins", open: OPEN_MENUS.has("wins"), on: { toggle: (e) => rememberMenu(e.target) } },
    el("summary", { id: "wins-summary" }, "How often the row beats the column, in percent"),
    scroller(
      el(
        "table",
        { class: "heat sticky", id: "win-table" },
        el("thead", {}, el("tr", {}, el("th", { class: "text" }, "%"), head)),
        el("tbody", {}, body),
      ),
      "Win rates",
    ),
  );
}

function pairTable(r) {
  const p = r.methods.map(() => r.methods.map(() => null));
  r.pairs.forEach(([a, b, v]) => {
    p[a][b] = v;
    p[b][a] = v;
  });
  const head = r.methods.map((m) => el("th", { scope: "col" }, METHOD[m].title));
  const body = r.methods.map((m, i) =>
    el(
      "tr",
      { class: rowClass(m) },
      el("th", { scope: "row", class: "method" }, methodName(m)),
      p[i].map((v, j) =>
        el("td", { css: v !== null && v < 0.05 ? heat(0.45) : {} }, i === j ? "" : pvalue(v)),
      ),
    ),
  );
  return el(
    "details",
    { id: "pairs", open: OPEN_MENUS.has("pairs"), on: { toggle: (e) => rememberMenu(e.target) } },
    el("summary", { id: "pairs-summary" }, "Pairwise p-values (Wilcoxon, Holm-corrected)"),
    paragraph("Coloured pairs differ at 5 %."),
    scroller(
      el(
        "table",
        { class: "heat sticky", id: "pair-table" },
        el("thead", {}, el("tr", {}, el("th", {}), head)),
        el("tbody", {}, body),
      ),
      "Pairwise p-values",
    ),
  );
}

/* Distances on the rows that all methods solved; only worth a table where they differ. */
function commonCard(groups) {
  const kept = groups.includes(ALL) ? D.paradigms.filter((p) => p !== "regression") : groups;
  const rows = D.common.filter(
    (c) => kept.includes(c.paradigm) && (S.model === ALL || c.model === S.model) && c.gower !== null,
  );
  const lines = D.methods
    .map((m) => {
      const mine = rows.filter((c) => c.method === m.name);
      const of = (key) => mean(known(mine.map((c) => c[key])));
      const sum = (key) => mine.reduce((a, c) => a + (c[key] || 0), 0);
      return {
        name: m.name,
        n: mine.length,
        own: of("gower_own"),
        common: of("gower"),
        sparse: of("sparsity_own"),
        sparseCommon: of("sparsity"),
        solved: sum("own"),
        shared: sum("common"),
        asked: sum("rows"),
      };
    })
    .filter((x) => x.n);
  if (!lines.length) return null;
  const apart = lines.filter((x) => x.solved !== x.shared && Math.abs(x.own - x.common) >= 0.0005);
  const told =
    "A method that solves only easy rows looks close on its own rows. Here distances are also taken on the rows that all methods of a paradigm solved, where each of them solved at least half.";
  if (!apart.length)
    return card("The same rows for everybody", paragraph(`${told} Here both are the same to three digits for every method.`));
  const number = (key) => (x) => (x[key] === null ? null : Number(x[key].toFixed(4)));
  const columns = [
    { key: "method", title: "Method", value: (x) => METHOD[x.name].title, cell: (x) => methodName(x.name) },
    { key: "own", title: "Gower ↓ own rows", value: number("own") },
    { key: "common", title: "Gower ↓ common rows", value: number("common") },
    { key: "sparse", title: "Sparsity ↓ own rows", value: number("sparse") },
    { key: "sparseCommon", title: "Sparsity ↓ common rows", value: number("sparseCommon") },
    { key: "solved", title: "Rows solved", value: (x) => x.solved, cell: (x) => `${count(x.solved)}${x.asked ? ` (${percent(x.solved / x.asked)} %)` : ""}`, better: "higher" },
    { key: "shared", title: "Common rows", value: (x) => x.shared, cell: (x) => count(x.shared), better: "higher" },
  ];
  return card(
    "The same rows for everybody",
    paragraph(told),
    grid({
      id: "common",
      columns,
      rows: apart.length < lines.length ? [...apart, ...lines.filter((x) => !apart.includes(x))] : lines,
      order: "common up",
      label: "Distances on common rows",
      rowClass: (x) => rowClass(x.name),
    }),
  );
}
