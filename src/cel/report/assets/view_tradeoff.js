"use strict";
/* Two criteria against each other, and time against quality. */

const measured = () => D.metrics.filter((m) => m.better !== "none").map((m) => m.name);
function firstOf(wanted) {
  const there = measured();
  return wanted.find((m) => there.includes(m)) || there[0];
}
function axisOptions() {
  return measured().map((m) => [m, metricTitle(m)]);
}
function chosenOr(name, wanted) {
  return measured().includes(S[name]) ? S[name] : firstOf(wanted);
}

VIEWS.push({
  id: "tradeoffs",
  title: "Trade-offs",
  filters: ["paradigm", "model", "dataset"],
  keys: ["x", "y", "detail"],
  render(root) {
    const x = chosenOr("x", ["l2_hamming", "gower", "l2"]),
      y = chosenOr("y", ["density_percentile", "log_density", "success"]);
    const controls = el(
      "div",
      { class: "controls" },
      picker("Across", axisOptions(), x, (v) => set({ x: v }), "axis-x"),
      picker("Up", axisOptions(), y, (v) => set({ y: v }), "axis-y"),
      checkbox("single problems", S.detail === "1", (v) => set({ detail: v ? "1" : "" }), "detail"),
    );
    root.append(
      card(
        "Two criteria against each other",
        controls,
        paragraph(`${METRIC[x].title}: ${METRIC[x].meaning} ${METRIC[y].title}: ${METRIC[y].meaning}`, "muted small"),
      ),
    );
    const groups = rankedGroups();
    let drawn = 0;
    for (const p of groups) {
      const made = scatterPoints(p, x, y);
      if (made.points.length < (groups.length > 1 ? 2 : 1)) continue;
      root.append(scatterCard(p, made, x, y, !drawn));
      drawn++;
    }
    if (!drawn) root.append(paragraph("No method has both values for these filters.", "empty"));
  },
});

function scatterCard(paradigm, made, x, y, first) {
  const front = frontText(made);
  const rows = made.points.map((p) => ({ ...p, on: made.front.includes(p) }));
  const columns = [
    {
      key: "method",
      title: "Method",
      value: (p) => METHOD[p.name].title,
      cell: (p) => [methodName(p.name), p.on ? el("span", { class: "tag" }, "front") : null],
    },
    shareColumn((p) => p.share),
    { key: "x", title: shortTitle(x), tip: METRIC[x].meaning, value: (p) => p.x, cell: (p) => interval(x, p.x, p.xi), better: METRIC[x].better },
    { key: "y", title: shortTitle(y), tip: METRIC[y].meaning, value: (p) => p.y, cell: (p) => interval(y, p.y, p.yi), better: METRIC[y].better },
  ];
  return card(
    groupTitle(paradigm),
    el("p", { class: "muted", id: first ? "front" : null }, `${front} ${commonText(made.common)}`),
    el(
      "div",
      { class: "beside" },
      chartBox(`tradeoff-${paradigm}-${x}-${y}`, narrow() ? 400 : 480, scatterChart(made, x, y, { detail: S.detail === "1" })),
      grid({
        id: `points-${paradigm}`,
        columns,
        rows,
        order: "x up",
        search: "Search methods",
        label: `${metricTitle(x)} and ${metricTitle(y)}`,
        rowClass: (p) => rowClass(p.name),
      }),
    ),
  );
}
/* How many of the rows a mean covers. */
function shareColumn(share) {
  return {
    key: "share",
    title: "Rows ↑",
    tip: shareTip,
    value: (x) => (share(x) === null ? null : Number(share(x).toFixed(4))),
    cell: (x) => (share(x) === null ? "–" : `${percent(share(x))} %`),
    better: "higher",
  };
}
function interval(metric, value, around) {
  const range =
    around && around.low !== null && around.low !== undefined
      ? el("span", { class: "small value" }, `${fine(around.low)} – ${fine(around.high)}`)
      : null;
  return [withUnit(metric, value), range];
}

VIEWS.push({
  id: "time",
  title: "Time",
  filters: ["paradigm", "model", "dataset"],
  keys: ["quality"],
  render(root) {
    const speed = firstOf(["cpu_ms_per_row", "ms_per_row", "time_s"]);
    const options = axisOptions().filter(([m]) => !isTime(m));
    const quality = chosenOr("quality", ["density_percentile", "prob_plausibility", "success"]);
    const paradigm = mainParadigm(),
      made = scatterPoints(paradigm, speed, quality);
    root.append(
      card(
        "Time against quality",
        el(
          "div",
          { class: "controls" },
          picker("Quality", options, quality, (v) => set({ quality: v }), "time-quality"),
        ),
        paragraph(
          `${groupTitle(paradigm)}. ${frontText(made)} ${commonText(made.common)} Times are those of the machine of the run and of its load${D.methods.some((m) => m.baseline) ? "; shipped ones were taken on another machine" : ""}.`,
        ),
        made.points.length
          ? chartBox(`time-${quality}`, narrow() ? 400 : 460, scatterChart(made, speed, quality))
          : paragraph("No method has both values for these filters.", "empty"),
      ),
      timeCard(),
    );
  },
});

function timeCard() {
  const chosen = cells(),
    names = {
      ms_per_row: "ms per row",
      cpu_ms_per_row: "CPU ms per row",
      time_explain_s: "Explaining (s)",
      time_fit_s: "Learning (s)",
      time_s: "Together (s)",
      time_cpu_s: "CPU (s)",
    },
    there = Object.keys(names).filter((m) => D.values[m]);
  const rows = methodsOf(chosen).map((name) => {
    const mine = chosen.filter((i) => CELLS.method[i] === name);
    const values = Object.fromEntries(
      there.map((c) => {
        const v = known(mine.map((i) => at(c, i))).sort((a, b) => a - b);
        return [c, v.length ? quantile(v, 0.5) : null];
      }),
    );
    return { name, values, cells: mine.length };
  });
  const columns = [
    { key: "method", title: "Method", value: (x) => METHOD[x.name].title, cell: (x) => methodName(x.name) },
    ...there.map((c) => ({ key: c, title: names[c], value: (x) => x.values[c], cell: (x) => fine(x.values[c]) })),
    { key: "cells", title: "Cells", value: (x) => x.cells },
  ];
  return card(
    "Median over cells",
    paragraph(
      "Training of the predictor and of the shared density is not counted; what a method learns for itself is.",
    ),
    grid({
      id: "times",
      columns,
      rows,
      order: `${there[0]} up`,
      search: "Search methods",
      label: "Times",
      rowClass: (x) => rowClass(x.name),
    }),
  );
}
