"""The report in a real browser: every view opens, filters work, nothing is requested."""

import csv
import math
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from cel.benchmark import load_suite
from cel.report.gathered import read_shipped, shipped_suites
from cel.report.html import page_html
from cel.report.page_data import page_data
from cel.report.paper_tables import paper_tables
from cel.report.source import read_run

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSER = next((p for n in ("chromium", "chromium-browser") if (p := shutil.which(n))), None)
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
VIEWS = {
    "overview": "Head of the leaderboard", "leaderboard": "mean ranks",
    "tradeoffs": "On the Pareto front", "time": "Time against quality",
    "tables": "Local methods on numerical datasets", "figures": "Global counterfactual methods",
    "coverage": "Share of rows solved", "rows": "Single rows in original units",
    "fairness": "Beyond chance", "cite": "BibTeX",
}  # fmt: skip
CHARTS = {"overview": 1, "leaderboard": 2, "tradeoffs": 3, "time": 1, "coverage": 1, "fairness": 1}
WIDTHS = (390, 1024, 1440)
ROWLESS = {"rows", "fairness"}  # shipped scores come without single rows
LARGEST = 16 * 2**20  # bytes of a page that is still quick to open

# Charts whose texts lie on each other or outside, and parts of cards that leave them.
GEOMETRY = """() => {
  const bad = [], view = document.querySelector('.panel:not([hidden])');
  for (const chart of view.querySelectorAll('svg.chart')) {
    const frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll('text')];
    const boxes = texts.map((t) => t.getBoundingClientRect());
    boxes.forEach((a, i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 ||
          a.bottom > frame.bottom + 1) bad.push(`outside: ${texts[i].textContent}`);
      boxes.slice(i + 1).forEach((b, j) => {
        const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (w > 1 && h > 3)
          bad.push(`overlap: ${texts[i].textContent} and ${texts[i + 1 + j].textContent}`);
      });
    });
  }
  for (const card of view.querySelectorAll('.card')) {
    const c = card.getBoundingClientRect();
    for (const n of card.querySelectorAll('*')) {
      if (n.closest('.scroll, .chartbox, pre')) continue;
      const r = n.getBoundingClientRect();
      if (r.width && (r.right > c.right + 1 || r.left < c.left - 1))
        bad.push(`leaves its card: ${n.tagName} ${n.id || n.textContent.slice(0, 40)}`);
    }
  }
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) bad.push(`the page is ${wide} px wider than the screen`);
  return bad;
}"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no system chromium was found")


def _write_page(folder, **changes):
    import report_run

    report_run.make_run(folder, rows=20, **changes)
    run = read_run(folder)
    page = folder / "index.html"
    text = page_html(page_data(run, paper_tables(run.scores, run.cells)))
    page.write_text(text, encoding="utf8")
    return page


@pytest.fixture(scope="module")
def helpers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield
    sys.modules.pop("report_run", None)


@pytest.fixture(scope="module")
def report(helpers, tmp_path_factory):
    return _write_page(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture(scope="module")
def crowd(helpers, tmp_path_factory):
    """Forty methods on three datasets."""
    methods = {
        f"method_{i:02d}": {"method": "report_run:Local", "params": {"random_state": i}}
        for i in range(40)
    }
    options = {"methods": methods, "datasets": ["wine", "mixed", "moons"], "folds": [0]}
    return _write_page(tmp_path_factory.mktemp("runs") / "crowd", **options)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Watched:
    """A page that remembers console errors and requests other than to itself."""

    def __init__(self, browser, report, width=1366, scheme="light"):
        view = {"width": width, "height": 850}
        self.context = browser.new_context(
            viewport=view, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.goto(report.as_uri())

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _request(self, request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.requests.append(request.url)

    def open(self, view):
        self.page.click(f"#tab-{view}")
        panel = self.page.locator(f"#panel-{view}")
        if view in CHARTS:
            panel.locator("svg.chart").first.wait_for(timeout=10_000)
        return panel

    @property
    def address(self):
        return unquote(self.page.evaluate("location.hash"))

    @property
    def focus(self):
        return self.page.evaluate("document.activeElement.id")

    def check(self):
        assert self.errors == []
        assert self.requests == []
        self.context.close()


@pytest.fixture
def watched(browser, report):
    made = Watched(browser, report)
    yield made
    made.check()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        (1440, "dark"),
        *(pytest.param(w, s, marks=pytest.mark.slow)
          for w, s in ((390, "dark"), (1024, "light"), (1024, "dark"), (1440, "light"))),
    ],
)  # fmt: skip
def test_every_view_fits(browser, report, width, scheme):
    seen = Watched(browser, report, width, scheme)
    assert seen.page.locator("html").get_attribute("data-theme") == scheme
    tabs = seen.page.locator("[role=tab]").evaluate_all("all => all.map(t => t.id.slice(4))")
    assert tabs == list(VIEWS)
    for view, text in VIEWS.items():
        panel = seen.open(view)
        assert text in panel.inner_text(), view
        assert panel.locator("svg.chart").count() >= CHARTS.get(view, 0), view
        assert seen.page.evaluate(GEOMETRY) == [], view
    seen.check()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_forty_methods_stay_readable(browser, crowd, width):
    seen = Watched(browser, crowd, width)
    for view in ("overview", "leaderboard", "tradeoffs", "time", "coverage", "rows"):
        panel = seen.open(view)
        assert seen.page.evaluate(GEOMETRY) == [], view
        sizes = panel.locator("svg.chart text").evaluate_all(
            "all => all.map(t => parseFloat(getComputedStyle(t).fontSize))"
        )
        assert min(sizes, default=12) >= 12, view
    assert seen.open("leaderboard").locator("#board-local tbody tr").count() == 40
    seen.check()


def test_the_first_view_tells_the_story(watched):
    panel = watched.open("overview")
    title = panel.locator("h1").inner_text()
    assert re.search(r"nearest", title)
    assert re.search(r"most plausible", title)
    head = panel.locator("#head tbody tr")
    assert head.count() == 6
    box = panel.locator("svg.scatter").bounding_box()
    assert box["y"] + box["height"] < 850, "the picture is on the first screen"
    labels = panel.locator("svg.scatter .label").all_text_contents()
    assert {"PPCEF", "DiCE", "Wachter"} <= set(labels)
    assert "AReS" not in labels, "paradigms are apart"
    assert "problems (dataset and model) on which every method shown has a value" in (
        panel.inner_text()
    )


def test_tables_sort_search_and_hide_columns(watched):
    page, panel = watched.page, watched.open("leaderboard")
    column = "#board-local tbody tr td:nth-of-type(4)"
    page.click("#sort-board-local-l2_hamming")
    ranks = [float(t.split("\n")[0]) for t in panel.locator(column).all_inner_texts()]
    assert ranks == sorted(ranks)
    head = page.locator("#board-local th", has_text="L2-Hamming")
    assert head.get_attribute("aria-sort") == "ascending"
    page.click("#sort-board-local-l2_hamming")
    again = [float(t.split("\n")[0]) for t in panel.locator(column).all_inner_texts()]
    assert again == sorted(ranks, reverse=True)
    assert watched.focus == "sort-board-local-l2_hamming"
    page.fill("#search-board-local", "c")
    names = panel.locator("#board-local tbody th").all_inner_texts()
    assert names
    assert all("c" in n.lower() for n in names)
    page.fill("#search-board-local", "latent")
    assert panel.locator("#board-local tbody th").all_inner_texts() == ["CCHVAE"]
    page.fill("#search-board-local", "")
    before = panel.locator("#board-local thead th").count()
    page.click("#choose-board-local")
    page.uncheck("#col-board-local-sparsity")
    assert panel.locator("#board-local thead th").count() == before - 1
    assert "Sparsity" not in panel.locator("#board-local thead").inner_text()
    assert watched.focus == "col-board-local-sparsity"


def test_criteria_and_weights_change_the_order(watched):
    page, panel = watched.page, watched.open("leaderboard")
    page.click("#weights-summary")
    first = panel.locator("#board-local tbody th").all_inner_texts()
    for metric in ("success", "l2_hamming", "sparsity", "density_percentile"):
        page.select_option(f"#weight-{metric}", "0")
    page.focus("#weight-ms_per_row")
    page.select_option("#weight-ms_per_row", "3")
    assert watched.focus == "weight-ms_per_row"
    heads = panel.locator("#board-local thead th").all_inner_texts()
    assert len(heads) == 5
    assert heads[3].startswith("Rows"), "without Success the share of rows stands for itself"
    assert "ms per row" in heads[4]
    order = panel.locator("#board-local tbody th").all_inner_texts()
    assert sorted(order) == sorted(first)
    assert order != first
    page.reload()
    assert panel.locator("#board-local tbody th").all_inner_texts() == order
    page.click("#weights-summary")
    page.click("#weights-reset")
    assert panel.locator("#board-local tbody th").all_inner_texts() == first


def test_means_over_found_rows_stand_beside_their_share(watched):
    page = watched.page
    shares = page.evaluate(
        """() => Object.fromEntries(D.methods.map((m) => {
          const paradigm = m.paradigms[0];
          const all = CELLS.dataset.map((_, i) => i).filter((i) =>
            CELLS.method[i] === m.name && CELLS.paradigm[i] === paradigm &&
            at("success", i) !== null);
          const sets = new Map();
          for (const i of all) {
            const key = problemOf(i);
            sets.set(key, [...(sets.get(key) || []), at("success", i)]);
          }
          const byData = new Map();
          for (const [key, v] of sets) {
            const d = key.split("|")[0];
            byData.set(d, [...(byData.get(d) || []), v.reduce((a, b) => a + b) / v.length]);
          }
          const means = [...byData.values()].map((v) => v.reduce((a, b) => a + b) / v.length);
          return [m.title, means.reduce((a, b) => a + b) / means.length];
        }))"""
    )

    def told(share):
        tenths = math.floor(1000 * share + 1e-9) / 10
        return f"{tenths:.1f} %" if 99 < tenths < 100 else f"{math.floor(100 * share + 1e-9)} %"

    head = watched.open("overview").locator("#head tbody tr").all()
    assert len(head) == 6
    for line in head:
        name = re.sub(r"^\d+\. ", "", line.locator("th").inner_text())
        assert line.locator("td").nth(1).inner_text() == told(shares[name])
    glance = watched.page.locator("section.card", has_text="At a glance").inner_text()
    assert len(re.findall(r"over [\d.]+ % of rows, rank", glance)) >= 10
    panel = watched.open("leaderboard")
    page.click("#weights-summary")
    assert panel.locator("#sort-board-local-share").count() == 0, "Success is a column already"
    page.select_option("#weight-success", "0")
    assert panel.locator("#sort-board-local-share").count() == 1
    line = panel.locator("#board-local tbody tr").first
    assert line.locator("td").nth(2).inner_text() == told(shares[line.locator("th").inner_text()])
    assert panel.locator("svg.chart text.share").count() > 5
    trade = watched.open("tradeoffs")
    line = trade.locator("#points-local tbody tr").first
    assert re.fullmatch(r"[\d.]+ %", line.locator("td").first.inner_text())
    tables = watched.open("tables")
    assert "Found" in tables.locator("#table-regression_all_lr thead").inner_text()
    assert "Valid." in tables.locator("#table-num_metrics_lr thead").inner_text()


def test_who_answers_few_rows_is_hollow_and_on_no_front(watched):
    page = watched.page
    few, front = page.evaluate(
        """() => {
          const worst = D.methods.find((m) => m.name === "dice").name;
          D.values.success.v.forEach((v, i) => {
            if (CELLS.method[i] === worst && v !== null) D.values.success.v[i] *= 0.5;
          });
          SHARE_CACHE.clear();
          D.values.l2_hamming.v.forEach((v, i) => {
            if (CELLS.method[i] === worst && v !== null) D.values.l2_hamming.v[i] = 0;
          });
          const made = scatterPoints("local", "l2_hamming", "density_percentile");
          return [made.few.map((p) => p.name), made.front.map((p) => p.name)];
        }"""
    )
    assert "dice" in few
    assert "dice" not in front, "nearest of all, on half of the rows"
    assert front
    panel = watched.open("tradeoffs")
    assert panel.locator("svg.scatter .few").count() >= 1
    assert (
        "answer less than 90 % of the rows that the most complete one answers"
        in panel.inner_text()
    )


def test_kinds_can_be_chosen(watched):
    page, panel = watched.page, watched.open("leaderboard")
    all_ranks = dict(
        zip(
            panel.locator("#board-local tbody th").all_inner_texts(),
            panel.locator("#board-local tbody td:nth-of-type(2)").all_inner_texts(),
            strict=True,
        )
    )
    page.focus("#filter-kind")
    page.select_option("#filter-kind", "latent")
    names = panel.locator("#board-local tbody th").all_inner_texts()
    assert names == ["CCHVAE"]
    rank = panel.locator("#board-local tbody td:nth-of-type(2)").first.inner_text()
    assert rank == all_ranks["CCHVAE"], "a filter hides lines, it does not rank again"
    assert "kind=latent" in watched.address
    assert watched.focus == "filter-kind"
    assert watched.open("coverage").locator("#coverage-table tbody th").all_inner_texts() == names
    tables = watched.open("tables")
    assert set(tables.locator("th.method").all_inner_texts()) <= {"CCHVAE", "CCHVAE\nnot printed"}
    page.go_back()
    page.go_back()
    page.go_back()
    assert page.locator("#filter-kind").input_value() == "all"


def test_paradigms_are_apart_and_can_be_brought_together(watched):
    page, panel = watched.page, watched.open("leaderboard")
    for name in ("local", "global", "group", "regression"):
        assert panel.locator(f"#board-{name}").count() == 1
    page.select_option("#filter-paradigm", "all")
    assert panel.locator("#board-all tbody tr").count() == 14
    assert panel.locator("#board-local").count() == 0
    page.select_option("#filter-paradigm", "regression")
    assert panel.locator("#board-regression tbody tr").count() == 2


def test_the_board_opens_on_a_criterion_that_separates(watched):
    panel = watched.open("leaderboard")
    assert panel.locator("#board-metric").input_value() == "l2_hamming"
    options = panel.locator("#board-metric option").evaluate_all("all => all.map(o => o.value)")
    assert {"gower", "ynn", "redundancy", "ms_per_row", "validity"} <= set(options)
    watched.page.select_option("#board-metric", "ms_per_row")
    assert "by ms per row" in panel.inner_text()
    assert panel.locator("svg.chart[aria-label^='Critical-difference']").count() == 1


def test_address_and_back(watched, report):
    page = watched.page
    panel = watched.open("tradeoffs")
    page.select_option("#axis-x", "sparsity")
    page.select_option("#filter-model", "lr")
    page.check("#detail")
    wanted = watched.address
    assert wanted.startswith("#tradeoffs?")
    assert {"model=lr", "x=sparsity", "detail=1"} == set(wanted.partition("?")[2].split("&"))
    text = panel.inner_text()
    page.reload()
    assert panel.inner_text() == text
    assert page.locator("#axis-x").input_value() == "sparsity"
    page.go_back()
    assert not page.locator("#detail").is_checked()
    page.go_back()
    assert page.locator("#filter-model").input_value() == "all"
    page.go_back()
    assert page.locator("#axis-x").input_value() == "l2_hamming"
    page.go_back()
    assert page.locator("#panel-overview").is_visible()
    page.go_forward()
    assert page.locator("#panel-tradeoffs").is_visible()
    page.goto(report.as_uri() + "#rows?show=method&method=dice&nonsense=1&model=nosuch")
    assert page.locator("#rows-method").input_value() == "dice"
    assert page.locator("#filter-model").input_value() == "all", "unknown values are ignored"


def test_focus_survives_every_change_by_keyboard(watched):
    page = watched.page
    for view, control in (
        ("tables", "filter-paradigm"), ("leaderboard", "board-metric"), ("tradeoffs", "axis-y"),
        ("time", "time-quality"), ("rows", "rows-row"), ("coverage", "filter-dataset"),
    ):  # fmt: skip
        watched.open(view)
        page.focus(f"#{control}")
        before = page.locator(f"#{control}").input_value()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(50)
        assert page.locator(f"#{control}").input_value() != before, view
        assert watched.focus == control, view
    watched.open("figures")
    page.focus("#figures-everything")
    page.keyboard.press("Space")
    assert page.locator("#figures-everything").is_checked()
    assert watched.focus == "figures-everything"
    watched.open("coverage")
    page.focus("#search-coverage-table")
    page.keyboard.type("dice")
    assert page.locator("#search-coverage-table").input_value() == "dice"
    assert page.locator("#coverage-table tbody tr").count() == 1


def test_keyboard_and_theme(watched):
    page = watched.page
    page.focus("#tab-overview")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tab-leaderboard").get_attribute("aria-selected") == "true"
    assert watched.focus == "tab-leaderboard"
    page.keyboard.press("End")
    assert page.locator("#panel-cite").is_visible()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    for view in VIEWS:
        watched.open(view)
        nameless = page.locator("button, select, input").evaluate_all(
            "all => all.filter(n => !(n.labels?.length || n.textContent.trim() || n.ariaLabel))"
            ".map(n => n.id)"
        )
        assert nameless == [], f"every control of {view} has a name"
        twice = page.evaluate(
            "() => [...document.querySelectorAll('[id]')].map(n => n.id)"
            ".filter((id, i, all) => all.indexOf(id) !== i)"
        )
        assert twice == [], f"every id of {view} is its own"


def test_wide_tables_say_that_they_scroll(browser, report):
    seen = Watched(browser, report, 390)
    panel = seen.open("leaderboard")
    box = panel.locator(".scrollbox", has=seen.page.locator("#board-local"))
    assert box.get_attribute("data-right") == "1"
    assert box.locator(".more").is_visible()
    box.locator(".scroll").evaluate("n => { n.scrollLeft = n.scrollWidth; }")
    seen.page.wait_for_timeout(100)
    assert not box.locator(".more").is_visible()
    seen.check()


def test_filters_change_what_is_shown(watched):
    page, panel = watched.page, watched.open("tables")
    assert panel.locator("table").count() == 10
    page.select_option("#filter-paradigm", "group")
    assert panel.locator("table").count() == 2
    page.select_option("#filter-model", "lr")
    assert panel.locator("table").count() == 1
    page.select_option("#filter-dataset", "wine")
    assert set(panel.locator("th[scope=rowgroup]").all_inner_texts()) == {"Wine"}
    coverage = watched.open("coverage")
    heads = coverage.locator("#coverage-table thead th").all_inner_texts()
    assert heads == ["Method", "Wine"]
    rows = coverage.locator("#coverage-table tbody th").all_inner_texts()
    assert rows == ["GLANCE", "T-CREx"]
    page.click("#filter-reset")
    assert coverage.locator("#coverage-table tbody tr").count() == 15
    assert page.locator("#filter-reset").count() == 0


def test_failures_printed_values_and_best_entries(watched):
    page, panel = watched.page, watched.open("tables")
    failed = panel.locator("#table-group_metrics_lr .state.error")
    assert failed.count() == 9
    failed.first.hover()
    assert "no rule covers any row" in page.locator("#tip").inner_text()
    assert panel.locator("sup").count() > 0, "partial entries have a star"
    assert panel.locator(".printed").count() == 0
    page.check("#tables-printed")
    assert panel.locator(".printed").count() > 100
    before = panel.locator("#table-cat_metrics_mlp tbody tr").count()
    page.uncheck("#tables-extra")
    assert panel.locator("#table-cat_metrics_mlp tbody tr").count() == before - 5
    best = panel.locator("#table-regression_all_lr tbody tr td:nth-of-type(4)").all_inner_texts()
    bold = panel.locator("#table-regression_all_lr tbody tr td:nth-of-type(4) b").all_inner_texts()
    shown = [float(t.split("±")[0]) for t in (b.split("\n")[0] for b in best)]
    assert [float(b.split("±")[0]) for b in bold] == [min(shown)]


def test_what_is_proved_is_counted(watched):
    panel = watched.open("coverage")
    lines = panel.locator("#proofs tbody tr")
    assert lines.count() == 1  # one method proves
    told = lines.locator("td").all_inner_texts()
    optimal, within, heuristic, impossible = (int(t.replace(",", "")) for t in told)
    assert optimal > within > heuristic == 0
    assert impossible > 0


def test_shares_are_rounded_down(watched):
    page = watched.page
    for share, text in ((1, "100"), (0.99704, "99.7"), (0.9999, "99.9"), (0.946, "94"), (0, "0")):
        assert page.evaluate("s => percent(s)", share) == text


def test_rows_open_with_people_and_a_plane(watched):
    page, panel = watched.page, watched.open("rows")
    assert page.locator("#rows-problem").input_value().startswith("mixed|")
    assert "job" in panel.locator("#row-table thead").inner_text()
    assert panel.locator("#row-table .new").count() > 0
    first = panel.locator("#row-table tbody th").first.inner_text()
    page.click("#sort-row-table-changed")
    assert panel.locator("#row-table tbody th").first.inner_text() == first == "now"
    page.select_option("#rows-show", "method")
    assert "→" in panel.locator("#method-rows").inner_text()


def test_fairness_names_groups_with_counts_and_intervals(watched):
    panel = watched.open("fairness")
    heads = panel.locator("#fair-mixed-group thead").inner_text()
    for words in ("group a: n", "group b: n", "answered", "cost"):
        assert words in heads
    line = panel.locator("#fair-mixed-group tbody tr").first.inner_text()
    assert re.search(r"\d+\.\d – \d+\.\d", line), "an interval"
    assert "maximum" not in panel.inner_text().lower()


def test_what_is_shown_can_be_taken_away(watched, tmp_path):
    page, panel = watched.page, watched.open("leaderboard")
    page.fill("#search-board-local", "dice")
    with page.expect_download() as waiting:
        page.click("#csv-board-local")
    waiting.value.save_as(tmp_path / "board.csv")
    lines = list(csv.reader((tmp_path / "board.csv").read_text(encoding="utf8").splitlines()))
    assert lines[0][:3] == ["Method", "Kind", "Average rank ↓"]
    assert [x[0] for x in lines[1:]] == ["DiCE"]
    overview = watched.open("overview")
    overview.locator("svg.scatter").wait_for()
    with page.expect_download() as waiting:
        page.click("#svg-trade-off")
    waiting.value.save_as(tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text(encoding="utf8")
    assert text.startswith("<svg")
    assert "var(" not in text, "a file of its own"
    with page.expect_download() as waiting:
        page.click("#png-trade-off")
    waiting.value.save_as(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert panel is not None


# -- shipped scores: `cel report --shipped paper|standard|quick` ---------------------------------


@pytest.fixture(scope="module", params=["quick", "standard", "paper"])
def shipped(request, tmp_path_factory):
    """Name of a suite, its scores and their page."""
    run = read_shipped(request.param)
    page = tmp_path_factory.mktemp(request.param) / "index.html"
    text = page_html(page_data(run, paper_tables(run.scores, run.cells)))
    page.write_text(text, encoding="utf8")
    return request.param, run, page


@pytest.mark.slow
def test_every_suite_has_shipped_scores():
    assert {"quick", "standard", "paper"} <= set(shipped_suites())


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_of_shipped_scores_opens(browser, shipped, width):
    name, run, page = shipped
    assert page.stat().st_size < LARGEST
    seen = Watched(browser, page, width, "dark" if width == 1024 else "light")
    for view, text in VIEWS.items():
        panel = seen.open(view) if view not in ROWLESS else seen.page.locator(f"#panel-{view}")
        if view in ROWLESS:
            seen.page.click(f"#tab-{view}")
            assert panel.inner_text().strip(), view
            continue
        assert text in panel.inner_text(), view
        assert panel.locator("svg.chart").count() >= min(CHARTS.get(view, 0), 1), view
        assert seen.page.evaluate(GEOMETRY) == [], view
    told = seen.open("overview").inner_text()
    assert f"Suite “{name}”" in told
    assert f"on {run.scores['dataset'].nunique()} datasets" in told
    assert "undefined" not in told
    assert "NaN" not in told
    seen.check()


@pytest.mark.slow
def test_every_shipped_line_is_on_the_board(browser, shipped):
    name, run, page = shipped
    seen = Watched(browser, page)
    panel = seen.open("leaderboard")
    shown = set()
    for paradigm in seen.page.evaluate("D.paradigms"):
        shown |= set(panel.locator(f"#board-{paradigm} tbody th").all_inner_texts())
    titles = seen.page.evaluate(
        """() => D.methods.filter((m) => CELLS.method.some((n, i) =>
             n === m.name && (at("success", i) || 0) > 0)).map((m) => m.title)"""
    )
    told = panel.inner_text()
    unranked = [t for t in set(titles) - shown if t not in told]
    assert unranked == [], "who answered has a rank, or is named: few problems"
    asked = run.scores.groupby("method")["dataset"].nunique()
    whole = asked.index[asked >= 0.8 * asked.max()]
    names = seen.page.evaluate("Object.fromEntries(D.methods.map((m) => [m.name, m.title]))")
    assert {names[m] for m in whole if names[m] in titles} <= shown
    labels = {m.label for m in load_suite(name).methods}
    assert set(run.scores["method"]) <= labels
    covered = seen.open("coverage").locator("#coverage-table tbody tr").count()
    assert covered == run.scores["method"].nunique()
    seen.check()
