"use strict";
/* Tabs, filters, theme and tooltips. */

const NODES = {
  tabs: document.getElementById("tabs"),
  main: document.getElementById("main"),
  filters: document.getElementById("filters"),
  theme: document.getElementById("theme"),
  tip: document.getElementById("tip"),
};
let ACTIVE = VIEWS[0];

function drawView() {
  const panel = document.getElementById(`panel-${ACTIVE.id}`);
  clearPlots();
  hideTip();
  panel.replaceChildren();
  ACTIVE.render(panel, drawView);
}

function showView(view, focus) {
  ACTIVE = view;
  for (const v of VIEWS) {
    const tab = document.getElementById(`tab-${v.id}`),
      on = v === view;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    document.getElementById(`panel-${v.id}`).hidden = !on;
    if (!on) document.getElementById(`panel-${v.id}`).replaceChildren();
    if (on) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (on && focus) tab.focus();
  }
  drawFilters();
  drawView();
}

function openView(view, focus) {
  history.replaceState(null, "", `#${view.id}`);
  showView(view, focus);
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

const CHOICES = {
  paradigm: ["Paradigm", () => [[ALL, "all"], ...D.paradigms.map((p) => [p, PARADIGM[p]])]],
  model: ["Model", () => [[ALL, "all"], ...D.models.map((m) => [m.name, m.title])]],
  dataset: ["Dataset", () => [[ALL, "all"], ...D.datasets.map((d) => [d.name, d.title])]],
};

function drawFilters() {
  NODES.filters.replaceChildren();
  NODES.filters.hidden = !ACTIVE.filters.length;
  for (const [name, [label, options]] of Object.entries(CHOICES)) {
    const pick = picker(label, options(), FILTER[name], (v) => {
      FILTER[name] = v;
      drawFilters();
      drawView();
    });
    const select = pick.querySelector("select");
    select.id = `filter-${name}`;
    if (!ACTIVE.filters.includes(name)) {
      select.disabled = true;
      pick.classList.add("off");
      pick.title = "Does not apply to this view.";
    }
    NODES.filters.append(pick);
  }
  if (Object.values(FILTER).some((v) => v !== ALL)) {
    NODES.filters.append(
      el(
        "button",
        {
          type: "button",
          class: "ghost",
          id: "filter-reset",
          on: {
            click: () => {
              Object.keys(FILTER).forEach((k) => {
                FILTER[k] = ALL;
              });
              drawFilters();
              drawView();
            },
          },
        },
        "Reset",
      ),
    );
  }
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
    drawView();
  }
});
NODES.theme.addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remember(next);
  setTheme(next);
  drawView();
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
    if (target) showTip(target);
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
const fromAddress = () => VIEWS.find((v) => `#${v.id}` === location.hash);
addEventListener("hashchange", () => {
  const v = fromAddress();
  if (v && v !== ACTIVE) showView(v);
});
showView(fromAddress() || VIEWS[0]);
