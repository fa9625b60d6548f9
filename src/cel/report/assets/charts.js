"use strict";
/* Charts as plain SVG in the colours of the page, drawn in real pixels. */

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (name === "css")
      for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.flat().filter(Boolean));
  return node;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const RULER = document.createElement("canvas").getContext("2d");
function textWidth(text, size, weight) {
  RULER.font = `${weight || 400} ${size}px ${css("--sans")}`;
  return RULER.measureText(text).width;
}

/* A box that draws its chart when its width is known, again when it changes, with its files. */
let CHARTS = [];
function chartBox(name, height, draw) {
  const node = el("div", { class: "chartbox", css: { "min-height": `${height}px` } });
  const tools = el(
    "div",
    { class: "charttools" },
    action("SVG", () => saveSvg(node, name), `svg-${name}`, { title: "Download as SVG" }),
    action("PNG", () => savePng(node, name), `png-${name}`, { title: "Download as PNG" }),
  );
  const frame = el("div", { class: "chartframe" }, node, tools);
  let last = 0;
  const paint = () => {
    const width = Math.floor(node.clientWidth);
    if (!width || width === last) return;
    last = width;
    node.replaceChildren(draw(width, height));
  };
  const watcher = new ResizeObserver(paint);
  watcher.observe(node);
  CHARTS.push(watcher);
  return frame;
}
function clearCharts() {
  CHARTS.forEach((c) => c.disconnect());
  CHARTS = [];
}

/* The chart as a file of its own: styles that come from the page are written into it. */
function standalone(node) {
  const chart = node.querySelector("svg"),
    copy = chart.cloneNode(true),
    from = [chart, ...chart.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  const names = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"];
  from.forEach((n, i) => {
    const style = getComputedStyle(n);
    for (const name of names) to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
    to[i].removeAttribute("data-tip");
    to[i].removeAttribute("tabindex");
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "Helvetica, Arial, sans-serif");
  const back = svg("rect", { width: "100%", height: "100%", fill: css("--card") });
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}
function saveSvg(node, name) {
  download(`${name}.svg`, standalone(node), "image/svg+xml");
}
function savePng(node, name) {
  const chart = node.querySelector("svg"),
    image = new Image(),
    scale = 3;
  image.onload = () => {
    const canvas = el("canvas", {
      width: chart.clientWidth * scale,
      height: chart.clientHeight * scale,
    });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => {
      const link = el("a", { href: URL.createObjectURL(blob), download: `${name}.png` });
      document.body.append(link);
      link.click();
      link.remove();
    });
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(node))}`;
}

/* Symbols, so that nobody has to tell methods apart by colour alone. */
const SHAPES = {
  circle: "M0 -1A1 1 0 1 1 0 1A1 1 0 1 1 0 -1Z",
  square: "M-.9 -.9H.9V.9H-.9Z",
  diamond: "M0 -1.25L1.1 0L0 1.25L-1.1 0Z",
  "triangle-up": "M0 -1.2L1.15 .9H-1.15Z",
  "triangle-down": "M0 1.2L1.15 -.9H-1.15Z",
  cross: "M-.35 -1.1H.35V-.35H1.1V.35H.35V1.1H-.35V.35H-1.1V-.35H-.35Z",
  star: "M0 -1.3L.34 -.42L1.24 -.4L.54 .16L.76 1.05L0 .54L-.76 1.05L-.54 .16L-1.24 -.4L-.34 -.42Z",
  hexagon: "M-.55 -1H.55L1.12 0L.55 1H-.55L-1.12 0Z",
  x: "M-1.1 -.65L-.65 -1.1L0 -.45L.65 -1.1L1.1 -.65L.45 0L1.1 .65L.65 1.1L0 .45L-.65 1.1L-1.1 .65L-.45 0Z",
};
function marker(symbol, x, y, size, attributes) {
  return svg("path", {
    d: SHAPES[symbol] || SHAPES.circle,
    transform: `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${size})`,
    "vector-effect": "non-scaling-stroke",
    ...attributes,
  });
}

/* Axes. */
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
function tickText(v) {
  const size = Math.abs(v);
  if (size >= 1e4 || (size > 0 && size < 1e-3)) return v.toExponential(0).replace("e+", "e");
  return String(Number(v.toPrecision(3)));
}
/* Linear, logarithmic for times, symmetric logarithmic where few values would flatten the rest. */
function makeScale(values, metric, from, to) {
  const low = Math.min(...values),
    high = Math.max(...values);
  const log = isTime(metric) && low > 0,
    bent = !log && high - low > 1000;
  const f = log
    ? Math.log10
    : bent
      ? (v) => Math.sign(v) * Math.log10(1 + Math.abs(v) / 10)
      : (v) => v;
  const a = f(low),
    b = f(high),
    pad = (b - a) * 0.06 || Math.abs(b) * 0.1 || 0.5,
    place = (v) => from + ((f(v) - (a - pad)) / (b - a + 2 * pad)) * (to - from);
  const inside = (v) => f(v) >= a - pad && f(v) <= b + pad;
  let marks = ticks(low - (log ? 0 : pad), high + (log ? 0 : pad), Math.abs(to - from) > 300 ? 6 : 4);
  if (log || bent) {
    const powers = [];
    for (let p = -5; p <= 12; p++) powers.push(10 ** p);
    const every = bent ? [...powers.map((p) => -p), 0, ...powers] : powers;
    const coarse = every.filter(inside);
    const finer = unique(every.flatMap((p) => [p, 2 * p, 5 * p])).filter(inside);
    const chosen = (coarse.length >= 3 ? coarse : finer).sort((x, y) => x - y);
    const kept = [];
    for (const v of chosen)
      if (!kept.length || Math.abs(place(v) - place(kept[kept.length - 1])) > 44) kept.push(v);
    marks = kept;
  }
  return { place, marks: marks.filter(inside) };
}

/* Points that no other point beats on both axes. */
function paretoFront(points, xMetric, yMetric) {
  const sx = METRIC[xMetric].better === "lower" ? -1 : 1,
    sy = METRIC[yMetric].better === "lower" ? -1 : 1;
  const beats = (a, b) =>
    sx * a.x >= sx * b.x && sy * a.y >= sy * b.y && (a.x !== b.x || a.y !== b.y);
  return points
    .filter((p) => !points.some((q) => beats(q, p)))
    .sort((a, b) => a.x - b.x || a.y - b.y);
}

function scatterPoints(paradigm, xMetric, yMetric) {
  const common = onCommonProblems(
    [xMetric, yMetric],
    cells({ paradigm }).filter((i) => paradigm !== ALL || CELLS.paradigm[i] !== "regression"),
  );
  const points = common.methods.map(({ name, values }) => {
    const x = meanInterval(
      common.problems,
      values.map((v) => v[xMetric]),
    );
    const y = meanInterval(
      common.problems,
      values.map((v) => v[yMetric]),
    );
    const share = foundShare(name, paradigm, common.problems);
    return { name, x: x.value, y: y.value, xi: x, yi: y, values, share };
  });
  /* A mean over the few rows that somebody answered beats nobody. */
  const found = overFound(xMetric) || overFound(yMetric);
  const most = Math.max(0, ...known(points.map((p) => p.share)));
  const few = found ? points.filter((p) => p.share !== null && p.share < FULL_SHARE * most) : [];
  const full = points.filter((p) => !few.includes(p));
  return { common, points, few, front: full.length ? paretoFront(full, xMetric, yMetric) : [] };
}
function frontText(made) {
  const few = made.few.length
    ? ` Hollow: methods that answer less than ${100 * FULL_SHARE} % of the rows that the most complete one answers; their means are over easier rows, so they are not on the front.`
    : "";
  const names = made.front.map((p) => METHOD[p.name].title).join(", ");
  return names
    ? `On the Pareto front (dotted), beaten by no method on both: ${names}.${few}`
    : `There is no front.${few}`;
}

/* One point per method with intervals, faint ones per problem, and the front as steps. */
function scatterChart(made, xMetric, yMetric, options) {
  const { points, front, common } = made;
  return (width, height) => {
    const left = 66,
      right = 18,
      top = 14,
      bottom = 46;
    const chart = svg("svg", {
      class: "chart scatter",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `${metricTitle(yMetric)} against ${metricTitle(xMetric)}: ${points
        .map((p) => `${METHOD[p.name].title} ${fine(p.x)}, ${fine(p.y)}`)
        .join("; ")}`,
    });
    if (!points.length) return chart;
    const ends = (axis) =>
      points.flatMap((p) => [
        p[axis],
        ...known([p[`${axis}i`].low, p[`${axis}i`].high]),
        ...(options?.detail ? p.values.map((v) => v[axis === "x" ? xMetric : yMetric]) : []),
      ]);
    const X = makeScale(ends("x"), xMetric, left, width - right),
      Y = makeScale(ends("y"), yMetric, height - bottom, top);
    drawAxes(chart, X, Y, { left, right, top, bottom, width, height }, xMetric, yMetric);
    if (options?.detail) drawProblems(chart, points, common, X, Y, xMetric, yMetric);
    if (front.length > 1) chart.append(frontLine(front, X, Y, xMetric, yMetric));
    const best = new Set(front.map((p) => p.name));
    const strong = (p) => points.length <= MANY || best.has(p.name) || isMine(p.name) || S.mark === p.name;
    for (const p of points) drawInterval(chart, p, X, Y, strong(p) ? 0.45 : 0.14);
    for (const p of points) {
      const m = METHOD[p.name],
        on = best.has(p.name),
        big = isMine(p.name) || S.mark === p.name;
      chart.append(
        marker(m.symbol, X.place(p.x), Y.place(p.y), big ? 9 : on ? 7 : 5.5, {
          fill: made.few.includes(p) ? css("--card") : colour(p.name),
          stroke: on || big ? css("--ink") : made.few.includes(p) ? colour(p.name) : css("--card"),
          "stroke-width": big ? 2.5 : on || made.few.includes(p) ? 1.6 : 1,
          class: made.few.includes(p) ? "point few" : "point",
          tabindex: 0,
          "data-tip": [
            `${m.title}: ${METRIC[xMetric].title} ${withUnit(xMetric, p.x)}`,
            `${METRIC[yMetric].title} ${withUnit(yMetric, p.y)}`,
            ...(p.share === null ? [] : [`answers ${covers(p.share)}`]),
          ].join(", "),
        }),
      );
    }
    const box = { left: left + 2, right: width - 4, top: 2, bottom: height - bottom - 2 };
    placeLabels(chart, points, X, Y, best, box);
    return chart;
  };
}

function drawAxes(chart, X, Y, box, xMetric, yMetric) {
  const { left, right, top, bottom, width, height } = box;
  for (const t of X.marks)
    chart.append(
      svg("line", { class: "axis", x1: X.place(t), x2: X.place(t), y1: top, y2: height - bottom }),
      svg("text", { x: X.place(t), y: height - bottom + 16, "text-anchor": "middle" }, tickText(t)),
    );
  for (const t of Y.marks)
    chart.append(
      svg("line", { class: "axis", x1: left, x2: width - right, y1: Y.place(t), y2: Y.place(t) }),
      svg("text", { x: left - 7, y: Y.place(t) + 4, "text-anchor": "end" }, tickText(t)),
    );
  const middle = (top + height - bottom) / 2;
  chart.append(
    svg(
      "text",
      { class: "strong xtitle", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" },
      axisTitle(xMetric),
    ),
    svg(
      "text",
      {
        class: "strong ytitle",
        x: 14,
        y: middle,
        transform: `rotate(-90 14 ${middle})`,
        "text-anchor": "middle",
      },
      axisTitle(yMetric),
    ),
  );
}
function axisTitle(metric) {
  const word = { higher: "↑ better", lower: "↓ better" }[METRIC[metric]?.better] || "";
  const unit = METRIC[metric]?.unit || "";
  return `${METRIC[metric]?.title || metric}${unit && unit !== "share" ? `, ${unit}` : ""} (${word})`;
}
function drawProblems(chart, points, common, X, Y, xMetric, yMetric) {
  for (const p of points)
    p.values.forEach((v, i) => {
      const [dataset, model] = common.problems[i].split("|");
      chart.append(
        marker(METHOD[p.name].symbol, X.place(v[xMetric]), Y.place(v[yMetric]), 3, {
          fill: colour(p.name),
          opacity: 0.4,
          "data-tip": `${METHOD[p.name].title}, ${DATASET[dataset].title}, ${MODEL[model].title}: ${fine(v[xMetric])}, ${fine(v[yMetric])}`,
        }),
      );
    });
}
function drawInterval(chart, p, X, Y, opacity) {
  const x = X.place(p.x),
    y = Y.place(p.y),
    paint = { stroke: colour(p.name), "stroke-width": 1.2, opacity };
  if (p.xi.low !== null && p.xi.low !== undefined)
    chart.append(svg("line", { x1: X.place(p.xi.low), x2: X.place(p.xi.high), y1: y, y2: y, ...paint }));
  if (p.yi.low !== null && p.yi.low !== undefined)
    chart.append(svg("line", { x1: x, x2: x, y1: Y.place(p.yi.low), y2: Y.place(p.yi.high), ...paint }));
}
/* What is beaten lies behind steps, not behind straight lines. */
function frontLine(front, X, Y, xMetric, yMetric) {
  const lowX = METRIC[xMetric].better === "lower",
    lowY = METRIC[yMetric].better === "lower";
  const p = front.map((f) => [X.place(f.x), Y.place(f.y)]);
  let path = `M${p[0][0]} ${p[0][1]}`;
  for (let i = 1; i < p.length; i++)
    path += lowX !== lowY ? `H${p[i][0]}V${p[i][1]}` : `V${p[i][1]}H${p[i][0]}`;
  return svg("path", { class: "front", d: path });
}

/* Every label where it covers no point and no other label, with a thin line if it is far. Among
   many points only labels of the front go far; the table beside the picture has the others. */
const MANY = 24;
function placeLabels(chart, points, X, Y, best, box) {
  const size = 12,
    taken = points.map((p) => {
      const x = X.place(p.x),
        y = Y.place(p.y);
      return { l: x - 8, r: x + 8, t: y - 8, b: y + 8 };
    });
  const free = (r) =>
    r.l >= box.left &&
    r.r <= box.right &&
    r.t >= box.top &&
    r.b <= box.bottom &&
    !taken.some((o) => r.l < o.r && r.r > o.l && r.t < o.b && r.b > o.t);
  const first = (p) => best.has(p.name) || isMine(p.name) || S.mark === p.name;
  const order = [...points].sort((a, b) => first(b) - first(a));
  for (const p of order) {
    const title = METHOD[p.name].title,
      w = textWidth(title, size, first(p) ? 600 : 400) + 4,
      x = X.place(p.x),
      y = Y.place(p.y);
    const spot = labelSpot(x, y, w, free, points.length <= MANY || first(p) ? 140 : 14);
    if (!spot) continue; // the table beside the picture has it
    taken.push(spot);
    const cx = (spot.l + spot.r) / 2,
      cy = (spot.t + spot.b) / 2;
    if (Math.hypot(cx - x, cy - y) > w / 2 + 22) {
      const ex = Math.max(spot.l, Math.min(x, spot.r)),
        ey = y < spot.t ? spot.t + 2 : y > spot.b ? spot.b - 2 : cy;
      chart.append(svg("line", { class: "leader", x1: x, y1: y, x2: ex, y2: ey }));
    }
    chart.append(
      svg(
        "text",
        {
          class: `label${first(p) ? " strong" : ""}${isMine(p.name) ? " mine" : ""}`,
          x: spot.l + 2,
          y: spot.b - 4,
        },
        title,
      ),
    );
  }
}
function labelSpot(x, y, w, free, most) {
  const h = 16;
  for (const far of [0, 14, 30, 50, 75, 105, 140].filter((f) => f <= most))
    for (const [sx, sy] of [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]]) {
      const cx = x + sx * (w / 2 + 10 + far),
        cy = y + sy * (h / 2 + 9 + far);
      const r = { l: cx - w / 2, r: cx + w / 2, t: cy - h / 2, b: cy + h / 2 };
      if (free(r)) return r;
    }
  return null;
}

/* One line per method: a value with its interval. lines: [{name, value, low, high, tip}]. */
function intervalChart(lines, metric, title) {
  const step = 27;
  const height = 34 + step * lines.length;
  return [
    height,
    (width) => {
      const side = Math.min(width * 0.34, Math.max(...lines.map((l) => textWidth(METHOD[l.name].title, 13))) + 22),
        chart = svg("svg", {
          class: "chart",
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "img",
          "aria-label": `${title}: ${lines.map((l) => `${METHOD[l.name].title} ${fine(l.value)}`).join(", ")}`,
        });
      const all = lines.flatMap((l) => known([l.value, l.low, l.high]));
      const shares = lines.some((l) => l.share !== null && l.share !== undefined),
        gap = shares ? 58 : 12;
      const X = makeScale(all, metric, side + 8, width - gap);
      if (shares)
        chart.append(svg("text", { x: width - 4, y: height - 14, "text-anchor": "end" }, "of rows"));
      for (const t of X.marks)
        chart.append(
          svg("line", { class: "axis", x1: X.place(t), x2: X.place(t), y1: 4, y2: height - 30 }),
          svg("text", { x: X.place(t), y: height - 14, "text-anchor": "middle" }, tickText(t)),
        );
      lines.forEach((l, i) => {
        const y = 17 + step * i,
          paint = colour(l.name);
        chart.append(
          svg("text", { class: "strong", x: side, y: y + 4, "text-anchor": "end" }, clipped(METHOD[l.name].title, side - 8, 13)),
        );
        if (shares && l.share !== null && l.share !== undefined)
          chart.append(
            svg("text", { class: "share", x: width - 4, y: y + 4, "text-anchor": "end" }, `${percent(l.share)} %`),
          );
        if (l.low !== null && l.low !== undefined)
          chart.append(
            svg("line", { x1: X.place(l.low), x2: X.place(l.high), y1: y, y2: y, stroke: paint, "stroke-width": 2, opacity: 0.6 }),
          );
        chart.append(
          marker(METHOD[l.name].symbol, X.place(l.value), y, 6, {
            fill: paint,
            stroke: css("--card"),
            tabindex: 0,
            "data-tip": l.tip,
          }),
        );
      });
      return chart;
    },
  ];
}
function clipped(text, width, size) {
  if (textWidth(text, size) <= width) return text;
  let end = text.length;
  while (end > 1 && textWidth(`${text.slice(0, end)}…`, size) > width) end--;
  return `${text.slice(0, end)}…`;
}

/* Shares as stacked bars. lines: [{name, parts: {key: number}}]. */
function barChart(lines, colours, title) {
  const step = 27,
    height = 30 + step * lines.length;
  return [
    height,
    (width) => {
      const side = Math.min(width * 0.34, Math.max(...lines.map((l) => textWidth(METHOD[l.name].title, 13))) + 14),
        chart = svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
      const place = (v) => side + 10 + v * (width - side - 34);
      for (const t of [0, 0.25, 0.5, 0.75, 1])
        chart.append(
          svg("line", { class: "axis", x1: place(t), x2: place(t), y1: 2, y2: height - 26 }),
          svg("text", { x: place(t), y: height - 10, "text-anchor": "middle" }, `${100 * t} %`),
        );
      lines.forEach((l, i) => {
        const total = Object.values(l.parts).reduce((a, b) => a + b, 0) || 1;
        let from = 0;
        chart.append(
          svg("text", { class: "strong", x: side, y: 19 + step * i, "text-anchor": "end" }, clipped(METHOD[l.name].title, side - 8, 13)),
        );
        for (const [key, n] of Object.entries(l.parts)) {
          if (!n) continue;
          chart.append(
            svg("rect", {
              x: place(from / total),
              width: Math.max(0.5, place((from + n) / total) - place(from / total)),
              y: 6 + step * i,
              height: 17,
              fill: colours[key],
              "data-tip": `${METHOD[l.name].title}, ${key.replace("_", " ")}: ${count(n)} of ${count(total)} rows, ${percent(n / total)} %`,
            }),
          );
          from += n;
        }
      });
      return chart;
    },
  ];
}

/* groups: [{name, values: [{v, tip}]}]; a point per value and a line at the median. */
function dotPlot(groups, metric) {
  const H = 170;
  return [
    H,
    (W) => {
      const everything = groups.flatMap((g) => g.values.map((x) => x.v));
      const chart = svg("svg", {
        class: "chart",
        width: W,
        height: H,
        viewBox: `0 0 ${W} ${H}`,
        role: "img",
        "aria-label": `${metricTitle(metric)}: ${groups
          .map((g) => `${METHOD[g.name].title} ${g.values.length ? fine(mean(g.values.map((x) => x.v))) : "none"}`)
          .join(", ")}`,
      });
      const Y = makeScale(everything, metric, H - 10, 8);
      const left = Math.max(46, ...Y.marks.map((t) => textWidth(tickText(t), 12) + 12));
      for (const t of Y.marks)
        chart.append(
          svg("line", { class: "axis", x1: left, x2: W, y1: Y.place(t), y2: Y.place(t) }),
          svg("text", { x: left - 6, y: Y.place(t) + 4, "text-anchor": "end" }, tickText(t)),
        );
      const step = (W - left) / groups.length,
        half = Math.min(11, step * 0.36);
      groups.forEach((g, i) => {
        const x = left + step * (i + 0.5),
          sorted = g.values.map((v) => v.v).sort((a, b) => a - b);
        if (!sorted.length) {
          chart.append(
            svg("text", { x, y: H - 14, "text-anchor": "middle", "data-tip": `${METHOD[g.name].title}: no value` }, "×"),
          );
          return;
        }
        const middle = Y.place(quantile(sorted, 0.5));
        chart.append(
          svg("line", { class: "median", x1: x - half, x2: x + half, y1: middle, y2: middle }),
          ...g.values.map((v, n) =>
            marker(
              METHOD[g.name].symbol,
              x + (g.values.length > 1 ? ((n / (g.values.length - 1)) * 2 - 1) * half * 0.7 : 0),
              Y.place(v.v),
              3.6,
              { fill: colour(g.name), opacity: 0.85, "data-tip": `${METHOD[g.name].title}, ${v.tip}: ${fine(v.v)}` },
            ),
          ),
        );
      });
      return chart;
    },
  ];
}

/* Mean ranks on a line; methods joined by a bar are not significantly different (Nemenyi). */
function rankDiagram(r) {
  const rank = r.place || r.rank,
    order = r.methods.map((_, i) => i).sort((a, b) => rank[a] - rank[b]),
    k = order.length,
    cliques = rankCliques(order.map((i) => rank[i]), r.difference),
    half = Math.ceil(k / 2),
    top = 66 + cliques.length * 11,
    height = top + 24 * half + 6;
  return [
    height,
    (given) => {
      const width = Math.max(given, 460),
        longest = Math.max(...order.map((i) => textWidth(`${METHOD[r.methods[i]].title}  00.00`, 13))),
        side = Math.min(longest + 24, width * 0.32),
        left = side,
        right = width - side;
      const x = (v) => left + ((v - 1) / Math.max(k - 1, 1)) * (right - left);
      const chart = svg("svg", {
        class: "chart",
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": `Critical-difference diagram: ${order.map((i) => `${METHOD[r.methods[i]].title} ${rank[i].toFixed(2)}`).join(", ")}`,
      });
      chart.append(svg("line", { class: "rule", x1: left, x2: right, y1: 50, y2: 50 }));
      const every = Math.ceil(k / Math.max(2, (right - left) / 26));
      for (let v = 1; v <= k; v += every)
        chart.append(
          svg("line", { class: "rule", x1: x(v), x2: x(v), y1: 45, y2: 50 }),
          svg("text", { x: x(v), y: 40, "text-anchor": "middle" }, String(v)),
        );
      if (r.difference) {
        const end = Math.min(x(1 + r.difference), width - 8);
        chart.append(
          svg("path", { class: "rule", d: `M${left} 12 V20 M${left} 16 H${end} M${end} 12 V20` }),
          svg("text", { x: left - 8, y: 20, "text-anchor": "end" }, `CD ${r.difference.toFixed(2)}`),
        );
      }
      cliques.forEach(([a, b], i) =>
        chart.append(
          svg("line", { class: "bar", x1: x(rank[order[a]]) - 4, x2: x(rank[order[b]]) + 4, y1: 62 + i * 11, y2: 62 + i * 11 }),
        ),
      );
      order.forEach((i, n) => {
        const onLeft = n < half,
          y = top + 24 * (onLeft ? n : k - 1 - n) + 8,
          at = x(rank[i]),
          end = onLeft ? left - 10 : right + 10,
          name = r.methods[i];
        chart.append(
          svg("path", { d: `M${at} 50 V${y} H${end}`, fill: "none", stroke: colour(name), "stroke-width": 1.6 }),
          marker(METHOD[name].symbol, at, 50, 4.5, { fill: colour(name) }),
          svg(
            "text",
            { class: "strong", x: onLeft ? end - 5 : end + 5, y: y + 4, "text-anchor": onLeft ? "end" : "start" },
            `${clipped(METHOD[name].title, side - 58, 13)}  ${rank[i].toFixed(2)}`,
          ),
        );
      });
      return chart;
    },
  ];
}
/* Longest runs of methods whose mean ranks differ by less than the critical difference. */
function rankCliques(rank, difference) {
  const out = [];
  if (!difference) return out;
  for (let a = 0; a < rank.length; a++) {
    let b = a;
    while (b + 1 < rank.length && rank[b + 1] - rank[a] < difference) b++;
    if (b > a && !out.some(([, end]) => end >= b)) out.push([a, b]);
  }
  return out;
}
