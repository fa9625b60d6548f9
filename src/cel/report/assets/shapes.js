"use strict";
/* Box plots and critical-difference diagrams as plain SVG. */

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (name === "css")
      for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else node.setAttribute(name, value);
  node.append(...children.flat().filter(Boolean));
  return node;
}

/* Linear, logarithmic for times, symmetric logarithmic where few values would flatten the rest. */
function axisScale(values, metric) {
  const low = Math.min(...values),
    high = Math.max(...values);
  if (/^(time_|ms_)/.test(metric) && low > 0) return Math.log10;
  if (high - low > 1000) return (v) => Math.sign(v) * Math.log10(1 + Math.abs(v) / 10);
  return (v) => v;
}

function ticks(low, high, wanted) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / wanted,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((s) => s * power >= raw) * power;
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step)
    out.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return out;
}

function axisTicks(values, metric, scale) {
  const low = Math.min(...values),
    high = Math.max(...values);
  if (isShare(metric)) return [0, 0.5, 1];
  if (scale(10) === 10) return ticks(low, high, 4);
  const powers = [];
  for (let p = -4; p <= 12; p++) powers.push(10 ** p);
  const large = powers.slice(5),
    signed = [...large.map((p) => -p).reverse(), 0, ...large];
  const coarse = scale === Math.log10 ? powers : signed;
  for (const all of [coarse, coarse.flatMap((p) => [p, 2 * p, 5 * p])]) {
    const inside = unique(all)
      .filter((v) => v >= low && v <= high)
      .sort((a, b) => a - b);
    if (inside.length >= 2) return inside.filter((_, i) => i % Math.ceil(inside.length / 5) === 0);
  }
  return ticks(low, high, 3);
}

function tickText(v) {
  const size = Math.abs(v);
  if (size >= 1e4 || (size > 0 && size < 1e-3)) return v.toExponential(0).replace("e+", "e");
  return String(Number(v.toPrecision(3)));
}

/* groups: [{name, values}]; one box per method. */
function boxPlot(groups, metric) {
  const W = narrow() ? 168 : 230,
    H = 136,
    left = 38,
    top = 6,
    bottom = 8;
  const everything = groups.flatMap((g) => g.values);
  const chart = svg("svg", {
    class: "chart",
    viewBox: `0 0 ${W} ${H}`,
    role: "img",
    "aria-label":
      `${metricTitle(metric)}: ` +
      groups
        .map((g) => `${METHOD[g.name].title} ${g.values.length ? fine(mean(g.values)) : "none"}`)
        .join(", "),
  });
  if (!everything.length) {
    chart.append(svg("text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, "no value"));
    return chart;
  }
  const scale = axisScale(everything, metric);
  const ends = isShare(metric) ? [0, 1, ...everything] : everything;
  let low = scale(Math.min(...ends)),
    high = scale(Math.max(...ends));
  const pad = (high - low) * 0.07 || Math.abs(high) * 0.1 || 0.5;
  low -= pad;
  high += pad;
  const y = (v) => top + (H - top - bottom) * (1 - (scale(v) - low) / (high - low));
  for (const t of axisTicks(everything, metric, scale)) {
    chart.append(
      svg("line", { class: "axis", x1: left, x2: W, y1: y(t), y2: y(t) }),
      svg("text", { x: left - 5, y: y(t) + 3.4, "text-anchor": "end" }, tickText(t)),
    );
  }
  const step = (W - left) / groups.length,
    half = Math.min(13, step * 0.34);
  groups.forEach((g, i) => chart.append(oneBox(g, left + step * (i + 0.5), half, y)));
  return chart;
}

function oneBox(group, x, half, y) {
  const paint = colour(group.name),
    v = [...group.values].sort((a, b) => a - b);
  const box = svg("g", { stroke: paint, fill: paint });
  if (!v.length) {
    box.append(svg("text", { x, y: 122, "text-anchor": "middle", stroke: "none" }, "×"));
    box.setAttribute("data-tip", `${METHOD[group.name].title}: no value`);
    return box;
  }
  const [q1, q2, q3] = [0.25, 0.5, 0.75].map((q) => quantile(v, q));
  const reach = 1.5 * (q3 - q1);
  const inside = v.filter((u) => u >= q1 - reach && u <= q3 + reach);
  const ends = [inside[0], inside[inside.length - 1]];
  box.append(
    svg("line", { x1: x, x2: x, y1: y(ends[0]), y2: y(ends[1]) }),
    svg("rect", {
      x: x - half,
      width: 2 * half,
      y: y(q3),
      height: Math.max(1.5, y(q1) - y(q3)),
      "fill-opacity": 0.5,
      rx: 1.5,
    }),
    svg("line", {
      x1: x - half,
      x2: x + half,
      y1: y(q2),
      y2: y(q2),
      stroke: "var(--ink)",
      "stroke-width": 2,
    }),
  );
  v.filter((u) => u < ends[0] || u > ends[1]).forEach((u) =>
    box.append(svg("circle", { cx: x, cy: y(u), r: 1.8 })),
  );
  box.setAttribute(
    "data-tip",
    `${METHOD[group.name].title}: median ${fine(q2)}, quartiles ${fine(q1)} to ${fine(q3)}, ${v.length} values`,
  );
  return box;
}

/* The ranking with Friedman's mean ranks over datasets, to which the critical difference belongs. */
function byPlace(ranking) {
  const order = ranking.methods.map((_, i) => i).sort((a, b) => ranking.place[a] - ranking.place[b]);
  return {
    methods: order.map((i) => ranking.methods[i]),
    rank: order.map((i) => ranking.place[i]),
    difference: ranking.difference,
  };
}

/* Mean ranks on a line; methods joined by a bar are not significantly different (Nemenyi). */
function rankDiagram(given) {
  const ranking = byPlace(given);
  const k = ranking.methods.length,
    W = narrow() ? 500 : 860,
    side = narrow() ? 132 : 190,
    left = side,
    right = W - side;
  const leftCount = Math.ceil(k / 2),
    cliques = rankCliques(ranking);
  const top = 64 + cliques.length * 11,
    H = top + 24 * leftCount + 6;
  const lowest = 1,
    highest = Math.max(k, 2);
  const x = (r) => left + ((r - lowest) / (highest - lowest)) * (right - left);
  const chart = svg("svg", {
    class: "chart",
    viewBox: `0 0 ${W} ${H}`,
    role: "img",
    css: { "min-width": `${Math.min(W, 620)}px` },
    "aria-label":
      "Critical-difference diagram: " +
      ranking.methods.map((m, i) => `${METHOD[m].title} ${ranking.rank[i].toFixed(2)}`).join(", "),
  });
  chart.append(svg("line", { class: "rule", x1: left, x2: right, y1: 50, y2: 50 }));
  for (let r = lowest; r <= highest; r++) {
    chart.append(
      svg("line", { class: "rule", x1: x(r), x2: x(r), y1: 45, y2: 50 }),
      svg("text", { x: x(r), y: 40, "text-anchor": "middle" }, String(r)),
    );
  }
  if (ranking.difference !== null) {
    const end = Math.min(x(lowest + ranking.difference), W - 12);
    chart.append(
      svg("path", { class: "rule", d: `M${left} 12 V20 M${left} 16 H${end} M${end} 12 V20` }),
      svg(
        "text",
        { x: left - 8, y: 20, "text-anchor": "end" },
        `CD = ${ranking.difference.toFixed(2)}`,
      ),
    );
  }
  cliques.forEach(([a, b], i) =>
    chart.append(
      svg("line", {
        class: "bar",
        x1: x(ranking.rank[a]) - 4,
        x2: x(ranking.rank[b]) + 4,
        y1: 61 + i * 11,
        y2: 61 + i * 11,
      }),
    ),
  );
  ranking.methods.forEach((m, i) => {
    const onLeft = i < leftCount,
      line = onLeft ? i : k - 1 - i,
      y = top + 24 * line + 8,
      at = x(ranking.rank[i]);
    const end = onLeft ? left - 12 : right + 12;
    chart.append(
      svg("path", {
        d: `M${at} 50 V${y} H${end}`,
        fill: "none",
        stroke: colour(m),
        "stroke-width": 1.8,
      }),
      svg("circle", { cx: at, cy: 50, r: 4, fill: colour(m) }),
      svg(
        "text",
        {
          class: "strong",
          x: onLeft ? end - 6 : end + 6,
          y: y + 4,
          "text-anchor": onLeft ? "end" : "start",
        },
        `${METHOD[m].title}  ${ranking.rank[i].toFixed(2)}`,
      ),
    );
  });
  return chart;
}

/* Longest runs of methods whose mean ranks differ by less than the critical difference. */
function rankCliques(ranking) {
  const r = ranking.rank,
    out = [];
  if (ranking.difference === null) return out;
  for (let a = 0; a < r.length; a++) {
    let b = a;
    while (b + 1 < r.length && r[b + 1] - r[a] < ranking.difference) b++;
    if (b > a && !out.some(([, end]) => end >= b)) out.push([a, b]);
  }
  return out;
}
