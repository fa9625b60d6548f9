"use strict";
/* Tabs, filters, theme and tooltips. */

const NODES = {
  tabs: document.getElementById("tabs"),
  main: document.getElementById("main"),
  filters: document.getElementById("filters"),
  theme: document.getElementById("theme"),
  tip: document.getElementById("tip"),
};
const activeView = () => VIEWS.find((v) => v.id === S.view) || VIEWS[0];

/* Draw everything again; what had the focus has it afterwards, with its cursor. */
function redraw() {
  const before = document.activeElement,
    id = before?.id || "",
    cursor = before?.type === "search" ? before.selectionStart : null;
  const scrolled = new Map(
    [...document.querySelectorAll(".scroll")].map((n) => [n.getAttribute("aria-label"), n.scrollLeft]),
  );
  drawTabs();
  drawFilters();
  drawView();
  for (const n of document.querySelectorAll(".scroll"))
    n.scrollLeft = scrolled.get(n.getAttribute("aria-label")) || 0;
  const after = id ? document.getElementById(id) : null;
  if (after && after !== document.activeElement) after.focus({ preventScroll: true });
  if (after && cursor !== null) after.setSelectionRange(cursor, cursor);
}

function drawView() {
  const view = activeView();
  clearCharts();
  hideTip();
  for (const v of VIEWS) {
    const panel = document.getElementById(`panel-${v.id}`);
    panel.hidden = v !== view;
    panel.replaceChildren();
  }
  document.title = `${view.title}: CEL report, ${D.meta.suite}`;
  view.render(document.getElementById(`panel-${view.id}`));
}

function openView(view, focus) {
  if (view.id !== S.view) set({ view: view.id, q: "" });
  if (focus) document.getElementById(`tab-${view.id}`).focus();
  scrollTo(0, 0);
}

function buildTabs() {
  VIEWS.forEach((v, i) => {
    const tab = el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${v.id}`,
        "aria-controls": `panel-${v.id}`,
        on: { click: () => openView(v) },
      },
      v.title,
    );
    tab.addEventListener("keydown", (e) => {
      const move = {
        ArrowRight: i + 1,
        ArrowLeft: i - 1 + VIEWS.length,
        Home: 0,
        End: VIEWS.length - 1,
      }[e.key];
      if (move === undefined) return;
      e.preventDefault();
      openView(VIEWS[move % VIEWS.length], true);
    });
    NODES.tabs.append(tab);
    NODES.main.append(
      el("div", {
        class: "panel",
        role: "tabpanel",
        id: `panel-${v.id}`,
        "aria-labelledby": `tab-${v.id}`,
        tabindex: "-1",
        hidden: true,
      }),
    );
  });
}

function drawTabs() {
  for (const v of VIEWS) {
    const tab = document.getElementById(`tab-${v.id}`),
      on = v.id === activeView().id;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    if (on) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

const CHOICES = {
  paradigm: [
    "Paradigm",
    () => [
      [APART, "each apart"],
      ...D.paradigms.map((p) => [p, PARADIGM[p]]),
      ...(D.paradigms.filter((p) => p !== "regression").length > 1 ? [[ALL, "all together"]] : []),
    ],
  ],
  model: ["Model", () => [[ALL, "all"], ...D.models.map((m) => [m.name, m.title])]],
  dataset: ["Dataset", () => [[ALL, "all"], ...D.datasets.map((d) => [d.name, d.title])]],
  kind: ["Kind", () => [[ALL, "all"], ...KINDS.map((k) => [k, k])]],
  mark: ["Highlight", () => [["", "none"], ...D.methods.map((m) => [m.name, m.title])]],
};

function drawFilters() {
  const view = activeView(),
    open = [...view.filters, ...(view.filters.length ? ["kind", "mark"] : [])];
  NODES.filters.replaceChildren();
  NODES.filters.hidden = !view.filters.length;
  for (const [name, [label, options]] of Object.entries(CHOICES)) {
    if (name === "kind" && KINDS.length < 2) continue;
    const pick = picker(label, options(), S[name], (v) => set({ [name]: v }), `filter-${name}`);
    if (!open.includes(name)) {
      pick.querySelector("select").disabled = true;
      pick.classList.add("off");
      pick.title = "Does not apply to this view.";
    }
    NODES.filters.append(pick);
  }
  if (SHARED.some((k) => S[k] !== DEFAULTS[k]))
    NODES.filters.append(
      action("Reset", () => set(Object.fromEntries(SHARED.map((k) => [k, DEFAULTS[k]]))), "filter-reset"),
    );
}

/* Theme: the system's, until the button is pressed. */
function remembered() {
  try {
    return localStorage.getItem("cel-theme");
  } catch {
    return null;
  }
}
function remember(theme) {
  try {
    localStorage.setItem("cel-theme", theme);
  } catch {
    /* private window: nothing to keep */
  }
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  NODES.theme.textContent = theme === "dark" ? "☀ Light" : "☾ Dark";
}
const SYSTEM = matchMedia("(prefers-color-scheme: dark)");
const systemTheme = () => (SYSTEM.matches ? "dark" : "light");
setTheme(remembered() || systemTheme());
SYSTEM.addEventListener("change", () => {
  if (!remembered()) {
    setTheme(systemTheme());
    redraw();
  }
});
NODES.theme.addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remember(next);
  setTheme(next);
  redraw();
});

/* One tooltip for everything that has data-tip, by mouse, keyboard or finger. */
let TIPPED = null;
function hideTip() {
  NODES.tip.hidden = true;
  TIPPED = null;
}
function showTip(target) {
  const text = target.getAttribute("data-tip");
  if (!text) return;
  TIPPED = target;
  NODES.tip.textContent = text;
  NODES.tip.hidden = false;
  const box = target.getBoundingClientRect(),
    size = NODES.tip.getBoundingClientRect();
  const left = Math.max(
    8,
    Math.min(box.left + box.width / 2 - size.width / 2, innerWidth - size.width - 8),
  );
  const above = box.top - size.height - 8;
  NODES.tip.style.left = `${left}px`;
  NODES.tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
}
for (const event of ["mouseover", "focusin", "click"]) {
  document.addEventListener(event, (e) => {
    const target = e.target.closest ? e.target.closest("[data-tip]") : null;
    if (target?.isConnected) showTip(target);
    else hideTip();
  });
}
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") hideTip();
});
addEventListener(
  "scroll",
  () => {
    if (TIPPED) showTip(TIPPED);
  },
  { passive: true, capture: true },
);
NODES.filters.addEventListener("submit", (e) => e.preventDefault());

document.getElementById("subtitle").textContent = `${D.meta.suite} report`;
buildTabs();
addEventListener("popstate", () => {
  readAddress();
  redraw();
});
readAddress();
redraw();
