"use strict";
/* Two criteria against each other, and time against quality. */

const TRADE_UI = { x: "", y: "", detail: false };
const TIME_UI = { y: "" };
const measured = () => D.metrics.filter((m) => m.better !== "none").map((m) => m.name);
function firstOf(wanted) {
  const there = measured();
  return wanted.find((m) => there.includes(m)) || there[0];
}
function axisOptions() {
  return measured().map((m) => [m, metricTitle(m)]);
}

VIEWS.push({
  id: "tradeoffs",
  title: "Trade-offs",
  filters: ["paradigm", "model", "dataset"],
  render(root, again) {
    TRADE_UI.x ||= firstOf(["gower", "l2_hamming", "l2"]);
    TRADE_UI.y ||= firstOf(["density_percentile", "log_density", "success"]);
    const node = plotBox(520),
      text = el("p", { class: "muted", id: "front" });
    root.append(
      card(
        "Two criteria against each other",
        el(
          "div",
          { class: "controls" },
          picker("Across", axisOptions(), TRADE_UI.x, (v) => {
            TRADE_UI.x = v;
            again();
          }),
          picker("Up", axisOptions(), TRADE_UI.y, (v) => {
            TRADE_UI.y = v;
            again();
          }),
          checkbox("single problems", TRADE_UI.detail, (v) => {
            TRADE_UI.detail = v;
            again();
          }),
        ),
        text,
        node,
        paragraph(
          `${METRIC[TRADE_UI.x].title}: ${METRIC[TRADE_UI.x].meaning} ${METRIC[TRADE_UI.y].title}: ${METRIC[TRADE_UI.y].meaning}`,
          "muted small",
        ),
      ),
    );
    const { points, front, common } = methodScatter(node, TRADE_UI.x, TRADE_UI.y, {
      detail: TRADE_UI.detail,
    });
    text.textContent = points.length
      ? `On the Pareto front, beaten by no method on both: ${front.map((p) => METHOD[p.name].title).join(", ")}. ${commonText(common)}`
      : "No method has both values for these filters.";
  },
});

VIEWS.push({
  id: "time",
  title: "Time",
  filters: ["paradigm", "model", "dataset"],
  render(root, again) {
    const speed = firstOf(["ms_per_row", "time_s"]);
    const options = axisOptions().filter(([m]) => !isTime(m));
    TIME_UI.y ||= firstOf(["density_percentile", "prob_plausibility", "success"]);
    const node = plotBox(460);
    root.append(
      card(
        "Time against quality",
        el(
          "div",
          { class: "controls" },
          picker("Quality", options, TIME_UI.y, (v) => {
            TIME_UI.y = v;
            again();
          }),
        ),
        node,
      ),
      timeCard(),
    );
    const { common } = methodScatter(node, speed, TIME_UI.y, { detail: true });
    node.before(paragraph(commonText(common)));
  },
});

function timeCard() {
  const chosen = cells(),
    columns = ["ms_per_row", "time_explain_s", "time_fit_s", "time_s"].filter((m) => D.values[m]);
  const lines = methodsOf(chosen)
    .map((m) => {
      const mine = chosen.filter((i) => CELLS.method[i] === m);
      return {
        m,
        values: columns.map((c) => {
          const v = known(mine.map((i) => at(c, i))).sort((a, b) => a - b);
          return v.length ? quantile(v, 0.5) : null;
        }),
      };
    })
    .sort((a, b) => (a.values[0] ?? Infinity) - (b.values[0] ?? Infinity));
  const body = lines.map((x) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "method" }, methodName(x.m)),
      x.values.map((v) => el("td", {}, fine(v))),
    ),
  );
  const head = {
    ms_per_row: "ms per row",
    time_explain_s: "Explaining (s)",
    time_fit_s: "Learning (s)",
    time_s: "Together (s)",
  };
  return card(
    "Median over cells",
    paragraph(
      "Training of the predictor and of the shared density is not counted; what a method learns for itself is.",
    ),
    sheet(
      { class: "sticky" },
      [el("th", { class: "text" }, "Method"), ...columns.map((c) => el("th", { scope: "col" }, head[c]))],
      body,
      "Times",
    ),
  );
}
