"use strict";
/* Everything that somebody needs to cite the run or to repeat it. */

VIEWS.push({
  id: "cite",
  title: "Cite",
  filters: [],
  render(root) {
    const c = D.cite,
      suite = JSON.stringify(c.suite, null, 2);
    const rows = Object.entries(c.environment).map(([k, v]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", class: "method" }, k),
        el("td", { class: "text" }, String(v)),
      ),
    );
    root.append(
      card(
        "Cite",
        paragraph(`Computed ${c.shipped ? "" : "until "}${c.computed}.`),
        textBlock("BibTeX", c.bibtex, "bibtex"),
      ),
      el(
        "div",
        { class: "grid2" },
        card(
          "Environment",
          scroller(el("table", { class: "wide" }, el("tbody", {}, rows)), "Environment"),
          action("Copy as JSON", (e) => copyText(JSON.stringify(c.environment, null, 2), e.target), "copy-environment"),
        ),
        card(
          "Files beside this page",
          el(
            "ul",
            {},
            [
              ["scores.csv", "every score: one line per cell and metric"],
              ["tables.tex", "the paper's tables in LaTeX"],
              ["figures/", "its figures as PDF, SVG and PNG at column width"],
              ["suite.json", "what was run"],
            ].map(([name, text]) => el("li", {}, el("a", { href: name }, name), ` ${text}`)),
          ),
          paragraph("The same run again:"),
          el("pre", {}, `cel run suite.json --out ${D.meta.suite}\ncel report ${D.meta.suite} --open`),
        ),
      ),
      card("Configuration of the suite", textBlock("As JSON", suite, "suite")),
    );
  },
});

function textBlock(title, text, id) {
  const pre = el("pre", { id: `text-${id}`, tabindex: "0" }, text);
  const button = el(
    "button",
    { type: "button", class: "ghost", id: `copy-${id}`, on: { click: () => copyText(pre.textContent, button) } },
    "Copy",
  );
  return el("div", {}, el("div", { class: "controls" }, el("h3", {}, title), button), pre);
}

function copyText(text, button) {
  const before = button.textContent;
  const done = () => {
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = before;
    }, 1500);
  };
  const byHand = () => {
    const area = el("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    done();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
  else byHand();
}
