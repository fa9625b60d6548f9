"use strict";
/* Tables that sort, search, hide columns and can be taken away as CSV. */

/* columns: [{key, title, tip, text, value(row), cell(row), css(row), better}], rows: any objects.
   `value` sorts and goes into the file, `cell` is what is drawn. */
function grid(options) {
  const { id, columns, label } = options;
  const hidden = new Set((unpack(S.hide)[id] || "").split(" ").filter(Boolean));
  const shownColumns = columns.filter((c, i) => i === 0 || !hidden.has(c.key));
  const rows = sortRows(options, searchRows(options));
  const head = shownColumns.map((c, i) => headCell(options, i ? c : { ...c, text: true }));
  const body = rows.map((row) =>
    el(
      "tr",
      { class: options.rowClass ? options.rowClass(row) : null },
      shownColumns.map((c, i) =>
        el(
          i === 0 ? "th" : "td",
          {
            class: [i === 0 ? "method" : c.text ? "text" : null, c.wrap ? "wrap" : null]
              .filter(Boolean)
              .join(" "),
            scope: i === 0 ? "row" : null,
            css: c.css ? c.css(row) : null,
            "data-tip": c.about ? c.about(row) : null,
          },
          c.cell ? c.cell(row) : cellText(c.value(row)),
        ),
      ),
    ),
  );
  const table = el(
    "table",
    { class: `${options.class || "wide"} sortable sticky`, id },
    el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, body),
  );
  return el(
    "div",
    { class: "grid" },
    toolbar(options, columns, hidden, shownColumns, rows),
    scroller(table, label),
    rows.length ? null : paragraph("Nothing matches the search.", "empty"),
  );
}

const cellText = (v) => (v === null || v === undefined ? "–" : String(v));

function searchRows({ rows, columns, pin }) {
  const words = S.q.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  const texts = columns.filter((c, i) => i === 0 || c.text);
  return rows.filter((row) => {
    if (pin?.(row)) return true;
    const line = texts.map((c) => String(c.value(row) ?? "").toLowerCase()).join(" ");
    return words.every((w) => line.includes(w));
  });
}

/* Rows in the chosen order; those that `pin` names stay on top. */
function sortRows(options, rows) {
  const pin = options.pin || (() => false);
  return [...rows.filter(pin), ...sorted(options, rows.filter((r) => !pin(r)))];
}
function sorted({ id, columns, order }, rows) {
  const [key, way] = (unpack(S.sort)[id] || order || "").split(" ");
  const column = columns.find((c) => c.key === key);
  if (!column) return rows;
  const sign = way === "down" ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = column.value(a),
      y = column.value(b);
    if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
    if (y === null || y === undefined) return -1;
    return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}

function headCell({ id, order }, c) {
  const [key, way] = (unpack(S.sort)[id] || order || "").split(" ");
  const on = key === c.key;
  const first = c.better === "higher" ? "down" : "up";
  const next = on ? (way === "up" ? "down" : "up") : first;
  const button = el(
    "button",
    {
      type: "button",
      id: `sort-${id}-${c.key}`,
      "data-tip": c.tip || null,
      on: { click: () => set({ sort: pack({ ...unpack(S.sort), [id]: `${c.key} ${next}` }) }) },
    },
    c.title,
  );
  return el(
    "th",
    {
      scope: "col",
      class: c.text ? "text" : null,
      "aria-sort": on ? (way === "down" ? "descending" : "ascending") : "none",
    },
    button,
  );
}

function toolbar({ id, search, file }, columns, hidden, shownColumns, rows) {
  const toggle = (key) => (on) => {
    const next = new Set(hidden);
    if (on) next.delete(key);
    else next.add(key);
    set({ hide: pack({ ...unpack(S.hide), [id]: [...next].join(" ") }) });
  };
  const saved = () =>
    download(
      `${file || id}.csv`,
      toCsv([
        shownColumns.map((c) => c.title),
        ...rows.map((r) => shownColumns.map((c) => c.value(r))),
      ]),
      "text/csv",
    );
  const chooser =
    columns.length > 3
      ? el(
          "details",
          {
            class: "menu",
            id: `columns-${id}`,
            open: OPEN_MENUS.has(`columns-${id}`),
            on: { toggle: (e) => rememberMenu(e.target) },
          },
          el("summary", { id: `choose-${id}` }, hidden.size ? `Columns (${hidden.size} hidden)` : "Columns"),
          el(
            "div",
            { class: "menubox" },
            columns
              .slice(1)
              .map((c) => checkbox(c.title, !hidden.has(c.key), toggle(c.key), `col-${id}-${c.key}`)),
          ),
        )
      : null;
  return el(
    "div",
    { class: "controls tools" },
    search ? searchBox(id, search) : null,
    chooser,
    action("CSV", saved, `csv-${id}`, { title: "Download what this table shows" }),
  );
}

/* Menus stay open while the view behind them is drawn again. */
const OPEN_MENUS = new Set();
function rememberMenu(node) {
  if (node.open) OPEN_MENUS.add(node.id);
  else OPEN_MENUS.delete(node.id);
}

function searchBox(id, label) {
  const input = el("input", {
    type: "search",
    id: `search-${id}`,
    placeholder: label,
    "aria-label": label,
    value: S.q,
    on: { input: () => set({ q: input.value }, true) },
  });
  return input;
}
