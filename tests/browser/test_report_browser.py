"""The report in a real browser: every view opens, filters work, nothing is requested."""

import shutil
import sys
from pathlib import Path

import pytest

from cel.report.data import page_data
from cel.report.html import page_html
from cel.report.source import read_run
from cel.report.tables import paper_tables

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSER = next((p for n in ("chromium", "chromium-browser") if (p := shutil.which(n))), None)
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
VIEWS = {
    "overview": "At a glance", "tables": "Local methods on numerical datasets",
    "figures": "Global counterfactual methods", "leaderboard": "mean ranks",
    "wins": "how often the row beats the column", "tradeoffs": "On the Pareto front",
    "time": "Time against quality", "coverage": "Share of rows solved",
    "rows": "Single rows in original units", "fairness": "Gap in cost", "cite": "BibTeX",
}  # fmt: skip
PLOTS = {"leaderboard": 1, "tradeoffs": 1, "time": 1, "coverage": 1, "fairness": 2}
SIZES = {"laptop": (1366, 850), "phone": (390, 844)}

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no system chromium was found")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        import report_run

        folder = tmp_path_factory.mktemp("runs") / "demo"
        report_run.make_run(folder, rows=6)
        run = read_run(folder)
        page = folder / "index.html"
        text = page_html(page_data(run, paper_tables(run.scores, run.cells)))
        page.write_text(text, encoding="utf8")
        yield page
    sys.modules.pop("report_run", None)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Watched:
    """A page that remembers console errors and requests other than to itself."""

    def __init__(self, browser, report, size="laptop", scheme="light"):
        width, height = SIZES[size]
        view = {"width": width, "height": height}
        self.context = browser.new_context(viewport=view, color_scheme=scheme)
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
        if view in PLOTS:
            plots = self.page.locator(f"#panel-{view} .plot .main-svg")
            plots.first.wait_for(timeout=10_000)
        return self.page.locator(f"#panel-{view}")

    def check(self):
        assert self.errors == []
        assert self.requests == []
        self.context.close()


@pytest.fixture
def watched(browser, report):
    made = Watched(browser, report)
    yield made
    made.check()


@pytest.mark.parametrize(("size", "scheme"), [("laptop", "light"), ("laptop", "dark"),
                                              ("phone", "light")])  # fmt: skip
def test_every_view_opens(browser, report, size, scheme):
    seen = Watched(browser, report, size, scheme)
    assert seen.page.locator("html").get_attribute("data-theme") == scheme
    tabs = seen.page.locator("[role=tab]").evaluate_all("all => all.map(t => t.id.slice(4))")
    assert tabs == list(VIEWS)
    for view, text in VIEWS.items():
        panel = seen.open(view)
        assert text in panel.inner_text(), view
        assert panel.locator(".js-plotly-plot").count() == PLOTS.get(view, 0), view
        wide = seen.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{view} is {wide} px wider than the screen"
    seen.check()


def test_filters_change_what_is_shown(watched):
    page, panel = watched.page, watched.open("tables")
    everything = panel.locator("table").count()
    assert everything == 10
    page.select_option("#filter-paradigm", "group")
    assert panel.locator("table").count() == 2
    page.select_option("#filter-model", "lr")
    assert panel.locator("table").count() == 1
    page.select_option("#filter-dataset", "wine")
    assert set(panel.locator("th[scope=rowgroup]").all_inner_texts()) == {"Wine"}
    coverage = watched.open("coverage")
    assert coverage.locator("#coverage-table tbody tr").count() == 1
    heads = coverage.locator("#coverage-table thead th").all_inner_texts()
    assert heads == ["Dataset", "GLANCE", "T-CREx"]
    page.click("#filter-reset")
    assert coverage.locator("#coverage-table tbody tr").count() == 4
    assert page.locator("#filter-reset").count() == 0


def test_failures_printed_values_and_best_entries(watched):
    panel = watched.open("tables")
    failed = panel.locator("#table-group_metrics_lr .state.error")
    assert failed.count() == 9
    failed.first.hover()
    assert "no rule covers any row" in watched.page.locator("#tip").inner_text()
    assert panel.locator("sup").count() > 0, "partial entries have a star"
    assert panel.locator(".printed").count() == 0
    panel.get_by_text("printed values beside ours").click()
    assert panel.locator(".printed").count() > 100
    before = panel.locator("#table-cat_metrics_mlp tbody tr").count()
    panel.get_by_text("methods that this table").click()
    assert panel.locator("#table-cat_metrics_mlp tbody tr").count() == before + 5
    best = panel.locator("#table-regression_all_lr tbody tr td:nth-of-type(3)").all_inner_texts()
    bold = panel.locator("#table-regression_all_lr tbody tr td:nth-of-type(3) b").all_inner_texts()
    shown = [float(t.split("±")[0]) for t in (b.split("\n")[0] for b in best)]
    assert [float(b.split("±")[0]) for b in bold] == [min(shown)]


def test_axes_of_the_trade_off_can_be_chosen(watched):
    panel = watched.open("tradeoffs")
    panel.locator("select").nth(0).select_option("success")
    panel.locator("select").nth(1).select_option("ms_per_row")
    panel.locator(".xtitle").wait_for()
    watched.page.wait_for_function(
        "document.querySelector('#panel-tradeoffs .xtitle')?.textContent.includes('Success')"
    )
    assert "ms per row" in panel.locator(".ytitle").text_content()
    assert panel.locator("#front").inner_text().count(",") >= 1


def test_leaderboard_wins_and_rows(watched):
    page, panel = watched.page, watched.open("leaderboard")
    panel.locator("select").select_option("gower")
    assert "Friedman" in panel.inner_text()
    assert panel.locator("svg.chart[aria-label^='Critical-difference']").count() == 1
    page.select_option("#filter-paradigm", "regression")
    assert "Regression methods" in panel.inner_text()
    page.select_option("#filter-paradigm", "local")
    wins = watched.open("wins").locator("#win-table tbody tr")
    assert wins.count() == 9
    rows = watched.open("rows")
    page.select_option("#filter-dataset", "mixed")
    assert rows.locator("#row-table td.new").count() > 0
    rows.locator("select").nth(1).select_option("method")
    assert "→" in rows.locator("#method-rows").inner_text()


def test_keyboard_and_theme(watched):
    page = watched.page
    page.focus("#tab-overview")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tab-tables").get_attribute("aria-selected") == "true"
    assert page.evaluate("document.activeElement.id") == "tab-tables"
    page.keyboard.press("End")
    assert page.locator("#panel-cite").is_visible()
    assert not page.locator("#panel-tables").is_visible()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    named = page.locator("button, select, input").evaluate_all(
        "all => all.every(n => n.labels?.length || n.textContent.trim() || n.ariaLabel)"
    )
    assert named, "every control has a name"


def test_an_address_opens_its_view(browser, report):
    seen = Watched(browser, report)
    seen.page.goto(report.as_uri() + "#fairness")
    seen.page.reload()
    assert seen.page.locator("#panel-fairness").is_visible()
    seen.check()
