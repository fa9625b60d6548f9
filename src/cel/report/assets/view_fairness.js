"use strict";
/* Is recourse as likely and as cheap for one protected group as for another? */

VIEWS.push({
  id: "fairness",
  title: "Fairness",
  filters: ["paradigm", "model", "dataset"],
  render(root) {
    const lines = (D.groups || []).filter(
      (g) =>
        (S.model === ALL || g.model === S.model) &&
        (S.dataset === ALL || g.dataset === S.dataset) &&
        METHOD[g.method] &&
        ofKind(g.method) &&
        (S.paradigm === APART || S.paradigm === ALL || METHOD[g.method].paradigms.includes(S.paradigm)),
    );
    if (!lines.length) {
      const told = D.datasets.some((d) => d.protected.length)
        ? "No stored rows of these filters have two protected groups of ten rows or more. Shipped scores come without rows."
        : "No dataset of this run declares a protected feature.";
      root.append(card("Fairness of recourse", paragraph(told, "empty")));
      return;
    }
    root.append(
      paragraph(
        "For every group: how many people were explained (n), how many of them got a verified answer, and what it cost them (mean Gower distance), each with a 95 % interval. Differences are set against chance: a difference is called one only if its interval, widened for the number of comparisons on this page, leaves out zero.",
        "lead",
      ),
    );
    const topics = unique(lines.map((g) => `${g.dataset}|${g.feature}`));
    const made = topics.map((key) => fairTopic(key, lines)).filter((t) => t.rows.length);
    const looks = made.reduce((a, t) => a + t.rows.length * t.contrasts.length * 2, 0);
    const z = normalQuantile(1 - 0.025 / Math.max(1, looks));
    if (!made.length) root.append(card("Fairness of recourse", paragraph("No feature has two groups of ten rows or more.", "empty")));
    for (const topic of made) root.append(fairCard(topic, z, looks));
  },
});

/* Groups of one protected feature of one dataset, by method. */
function fairTopic(key, lines) {
  const [dataset, feature] = key.split("|");
  const mine = lines.filter((g) => g.dataset === dataset && g.feature === feature);
  const groups = unique(mine.map((g) => g.group)).sort();
  const models = unique(mine.map((g) => g.model)).length || 1;
  const sums = (method, keep) => {
    const some = mine.filter((g) => g.method === method && keep(g.group));
    const add = (name) => some.reduce((a, g) => a + g[name], 0);
    return { rows: add("rows"), found: add("found"), cost: add("cost"), square: add("square"), models };
  };
  const contrasts = groups.length === 2 ? [groups[0]] : groups;
  const rows =
    groups.length < 2
      ? []
      : D.methods
          .map((m) => m.name)
          .filter((name) => unique(mine.filter((g) => g.method === name).map((g) => g.group)).length > 1)
          .map((name) => ({
            name,
            groups: Object.fromEntries(groups.map((g) => [g, sums(name, (x) => x === g)])),
            others: Object.fromEntries(groups.map((g) => [g, sums(name, (x) => x !== g)])),
          }));
  return { dataset, feature, groups, contrasts, rows };
}

/* The same people are asked once per model; they are counted once in an interval. */
function shareOf(s, z) {
  const n = s.rows / s.models,
    p = s.rows ? s.found / s.rows : null;
  if (p === null) return { value: null, low: null, high: null };
  const c = 1 + (z * z) / n,
    middle = (p + (z * z) / (2 * n)) / c,
    half = (z / c) * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  return { value: p, low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}
function costOf(s, z) {
  if (s.found < 2) return { value: null, low: null, high: null };
  const m = s.cost / s.found,
    spread = Math.sqrt(Math.max(0, s.square / s.found - m * m)),
    half = (z * spread) / Math.sqrt(Math.max(1, s.found / s.models));
  return { value: m, low: m - half, high: m + half };
}
/* Newcombe's interval of a difference from the intervals of both sides. */
function gap(a, b) {
  if (a.value === null || b.value === null) return null;
  const d = a.value - b.value;
  return {
    value: d,
    low: d - Math.hypot(a.value - a.low, b.high - b.value),
    high: d + Math.hypot(a.high - a.value, b.value - b.low),
  };
}
function normalQuantile(p) {
  let low = 0,
    high = 8;
  for (let i = 0; i < 60; i++) {
    const z = (low + high) / 2;
    if (normalBelow(z) < p) low = z;
    else high = z;
  }
  return (low + high) / 2;
}
/* Abramowitz and Stegun 7.1.26; good to seven digits. */
function normalBelow(z) {
  const t = 1 / (1 + 0.3275911 * (z / Math.SQRT2));
  const poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return 1 - 0.5 * poly * Math.exp((-z * z) / 2);
}

function fairCard(topic, z, looks) {
  const { dataset, feature, groups, rows, contrasts } = topic;
  const tell = (g) => (g.length > 3 ? g : `${feature} ${g}`);
  const points = (v) => `${v > 0 ? "+" : ""}${(100 * v).toFixed(1)}`;
  const verdict = (x) => {
    const out = [];
    for (const g of contrasts) {
      const other = groups.length === 2 ? tell(groups[1]) : "the others";
      const won = gap(shareOf(x.groups[g], z), shareOf(x.others[g], z));
      const cost = gap(costOf(x.groups[g], z), costOf(x.others[g], z));
      if (won && (won.low > 0 || won.high < 0))
        out.push(`${tell(g)} is answered ${won.value > 0 ? "more" : "less"} often than ${other}: ${points(won.value)} points`);
      if (cost && (cost.low > 0 || cost.high < 0))
        out.push(`${tell(g)} pays ${cost.value > 0 ? "more" : "less"} than ${other}: ${cost.value > 0 ? "+" : ""}${cost.value.toFixed(3)}`);
    }
    return out.join("; ") || "no difference beyond chance";
  };
  const columns = [
    { key: "method", title: "Method", value: (x) => METHOD[x.name].title, cell: (x) => methodName(x.name) },
    { key: "verdict", title: "Beyond chance", text: true, wrap: true, value: verdict },
    ...groups.flatMap((g) => [
      { key: `n-${g}`, title: `${tell(g)}: n`, value: (x) => x.groups[g].rows, cell: (x) => count(x.groups[g].rows), better: "higher" },
      {
        key: `s-${g}`,
        title: `${tell(g)}: answered ↑`,
        better: "higher",
        value: (x) => shareOf(x.groups[g], 1.96).value,
        cell: (x) => {
          const s = shareOf(x.groups[g], 1.96);
          return s.value === null
            ? "–"
            : [`${percent(s.value)} %`, el("span", { class: "small value" }, `${(100 * s.low).toFixed(1)} – ${(100 * s.high).toFixed(1)}`)];
        },
      },
      {
        key: `c-${g}`,
        title: `${tell(g)}: cost ↓`,
        value: (x) => costOf(x.groups[g], 1.96).value,
        cell: (x) => {
          const s = costOf(x.groups[g], 1.96);
          return s.value === null ? "–" : [s.value.toFixed(3), el("span", { class: "small value" }, `${s.low.toFixed(3)} – ${s.high.toFixed(3)}`)];
        },
      },
    ]),
  ];
  const first = contrasts[0],
    lines = rows
      .map((x) => ({ x, d: gap(costOf(x.groups[first], 1.96), costOf(x.others[first], 1.96)) }))
      .filter(({ d }) => d)
      .map(({ x, d }) => ({
        name: x.name,
        value: d.value,
        low: d.low,
        high: d.high,
        tip: `${METHOD[x.name].title}: ${d.value.toFixed(3)}, 95 %: ${d.low.toFixed(3)} to ${d.high.toFixed(3)}`,
      }));
  return card(
    `${DATASET[dataset].title}: ${feature}`,
    grid({
      id: `fair-${dataset}-${feature}`,
      columns,
      rows,
      search: "Search methods",
      label: `Outcomes by ${feature}`,
      rowClass: (x) => rowClass(x.name),
    }),
    lines.length
      ? [
          el("h3", {}, `What ${tell(first)} pays more than ${groups.length === 2 ? tell(groups[1]) : "the others"} (Gower distance)`),
          chartBox(`cost-${dataset}-${feature}`, ...intervalChart(lines, "gower", "Difference in cost")),
          paragraph(
            `Single 95 % intervals; 0 is even-handed. With ${looks} comparisons on this page some leave out zero by chance, which the verdicts allow for.`,
            "muted small",
          ),
        ]
      : null,
  );
}
