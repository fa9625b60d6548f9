"use strict";
/* Plotly in the colours of the page. */

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let DRAWN = [];

function clearPlots() {
  DRAWN.forEach((node) => Plotly.purge(node));
  DRAWN = [];
}

/* Draw once the node is in the page, so that its width is known. */
function plot(node, traces, layout) {
  DRAWN.push(node);
  const axis = {
    gridcolor: css("--line"),
    zerolinecolor: css("--line"),
    linecolor: css("--line"),
    automargin: true,
    title: { standoff: 8 },
  };
  const merged = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: css("--sans"), size: 12.5, color: css("--ink") },
    margin: { l: 56, r: 18, t: 14, b: 46 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: {
      bgcolor: css("--ink"),
      bordercolor: css("--ink"),
      font: { color: css("--card"), family: css("--sans") },
    },
    ...layout,
    xaxis: { ...axis, ...(layout.xaxis || {}) },
    yaxis: { ...axis, ...(layout.yaxis || {}) },
  };
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: false,
    scrollZoom: false,
  };
  requestAnimationFrame(() => {
    if (node.isConnected) Plotly.newPlot(node, traces, merged, config);
  });
  return node;
}

function plotBox(height) {
  return el("div", { class: "plot", css: { height: `${height}px` } });
}

const isTime = (metric) => /^(time_|ms_)/.test(metric);
function metricAxis(metric) {
  const log = isTime(metric);
  return {
    title: { text: metricTitle(metric), standoff: 8 },
    type: log ? "log" : "linear",
    ...(log ? { dtick: 1 } : {}),
  };
}

/* Points that no other point beats on both axes; those are joined in the order of x. */
function paretoFront(points, xMetric, yMetric) {
  const sx = METRIC[xMetric].better === "lower" ? -1 : 1,
    sy = METRIC[yMetric].better === "lower" ? -1 : 1;
  const beats = (a, b) =>
    sx * a.x >= sx * b.x && sy * a.y >= sy * b.y && (a.x !== b.x || a.y !== b.y);
  return points
    .filter((p) => !points.some((q) => beats(q, p)))
    .sort((a, b) => a.x - b.x || a.y - b.y);
}

/* One point per method, faint ones per problem, and the front. */
function methodScatter(node, xMetric, yMetric, options) {
  const chosen = cells(),
    common = onCommonProblems([xMetric, yMetric], chosen),
    points = [],
    traces = [];
  for (const { name, values } of common.methods) {
    if (options.detail) traces.push(detailTrace(name, common.problems, values, xMetric, yMetric));
    points.push({
      name,
      x: mean(values.map((v) => v[xMetric])),
      y: mean(values.map((v) => v[yMetric])),
      n: values.length,
    });
  }
  const front = paretoFront(points, xMetric, yMetric),
    best = new Set(front.map((p) => p.name));
  if (front.length > 1) {
    traces.push({
      x: front.map((p) => p.x),
      y: front.map((p) => p.y),
      mode: "lines",
      hoverinfo: "skip",
      line: { color: css("--accent"), width: 1.6, dash: "dot" },
    });
  }
  const sides = labelSides(points, xMetric, yMetric, node);
  for (const [n, p] of points.entries()) {
    const m = METHOD[p.name];
    traces.push({
      x: [p.x],
      y: [p.y],
      mode: "markers+text",
      text: [m.title],
      textposition: sides[n],
      cliponaxis: false,
      textfont: { size: 11.5, color: best.has(p.name) ? css("--ink") : css("--muted") },
      marker: {
        size: best.has(p.name) ? 14 : 11,
        symbol: m.symbol,
        color: colour(p.name),
        line: {
          width: best.has(p.name) ? 2 : 1,
          color: best.has(p.name) ? css("--ink") : css("--card"),
        },
      },
      hovertemplate: `<b>${m.title}</b><br>${METRIC[xMetric].title}: ${fine(p.x)}<br>${METRIC[yMetric].title}: ${fine(p.y)}<br>${p.n} problems<extra></extra>`,
    });
  }
  plot(node, traces, {
    xaxis: metricAxis(xMetric),
    yaxis: metricAxis(yMetric),
    margin: { l: 60, r: 30, t: 30, b: 50 },
  });
  return { points, front, common };
}

/* Put each label on the side where it covers the fewest points and labels before it. */
function labelSides(points, xMetric, yMetric, node) {
  const width = (node.clientWidth || innerWidth) - 100,
    height = (parseFloat(node.style.height) || 460) - 100;
  const place = (values, metric, size) => {
    const v = values.map((u) => (isTime(metric) ? Math.log10(u) : u)),
      low = Math.min(...v),
      span = Math.max(...v) - low || 1;
    return v.map((u) => ((u - low) / span) * size);
  };
  const x = place(
      points.map((p) => p.x),
      xMetric,
      width,
    ),
    y = place(
      points.map((p) => p.y),
      yMetric,
      height,
    );
  const taken = points.map((_, i) => ({ x: x[i], y: y[i], w: 12, h: 12 }));
  return points.map((p, i) => {
    const w = METHOD[p.name].title.length * 7 + 4,
      far = w / 2 + 11;
    const spots = {
      "top center": [0, 15],
      "bottom center": [0, -15],
      "middle right": [far, 0],
      "middle left": [-far, 0],
    };
    let best = null;
    for (const [side, [dx, dy]] of Object.entries(spots)) {
      const box = { x: x[i] + dx, y: y[i] + dy, w, h: 14 };
      const hits =
        taken.filter(
          (t, j) =>
            j !== i &&
            Math.abs(t.x - box.x) < (t.w + w) / 2 &&
            Math.abs(t.y - box.y) < (t.h + 14) / 2,
        ).length + (box.x - w / 2 < -40 || box.x + w / 2 > width + 30 ? 1 : 0);
      if (!best || hits < best.hits) best = { hits, side, box };
    }
    taken.push(best.box);
    return best.side;
  });
}

function detailTrace(name, problems, values, xMetric, yMetric) {
  const text = problems.map((key) => {
    const [dataset, model] = key.split("|");
    return `${METHOD[name].title}, ${DATASET[dataset].title}, ${MODEL[model].title}`;
  });
  return {
    x: values.map((v) => v[xMetric]),
    y: values.map((v) => v[yMetric]),
    text,
    mode: "markers",
    opacity: 0.4,
    marker: { size: 6, symbol: METHOD[name].symbol, color: colour(name) },
    hovertemplate: "%{text}<br>%{x:.3g}, %{y:.3g}<extra></extra>",
  };
}

/* Which problems a picture stands on. */
function commonText(common) {
  const left = common.leftOut.length
    ? ` Left out, with values on less than half of them: ${common.leftOut.map((m) => METHOD[m].title).join(", ")}.`
    : "";
  return `Means over the ${common.problems.length} of ${common.of} ${common.task} problems on which every method shown has a value.${left}`;
}
