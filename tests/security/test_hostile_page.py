"""The report of hostile labels in a real browser: no script runs, no policy is broken."""

import shutil
import sys
from pathlib import Path

import pytest

from cel.report.html import page_html
from cel.report.page_data import page_data
from cel.report.paper_tables import paper_tables
from cel.report.source import read_run

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = next((p for n in ("chromium", "chromium-browser") if (p := shutil.which(n))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no system chromium was found"),
]
LABELS = [
    "__proto__", "constructor", "toString", "<img src=x onerror=document.title='owned'>",
    "</script><script>document.title='owned'</script>", "javascript:document.title='owned'",
    "w" * 200, "\u202eevil", "a[/red]", "${document.title='owned'}", "\\u003cscript>", "'\"><svg/",
]  # fmt: skip
VIEWS = (
    "overview", "tables", "figures", "leaderboard", "wins", "tradeoffs", "time", "coverage",
    "rows", "fairness", "cite",
)  # fmt: skip


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "browser"))
    import report_run

    methods = {
        label: {"method": "report_run:Local", "params": {"random_state": i}}
        for i, label in enumerate(LABELS)
    }
    report_run.make_run(tmp_path / "run", rows=4, methods=methods)
    run = read_run(tmp_path / "run")
    text = page_html(page_data(run, paper_tables(run.scores, run.cells)))
    (tmp_path / "index.html").write_text(text, encoding="utf8")
    yield tmp_path / "index.html"
    sys.modules.pop("report_run", None)


def test_hostile_labels_do_nothing(page):
    said = []
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(
            executable_path=BROWSER, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page()
        tab.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        tab.on("pageerror", lambda e: said.append(str(e)))
        for view in VIEWS:
            tab.goto(f"{page.as_uri()}#{view}")
            tab.wait_for_timeout(300)
            assert "owned" not in tab.title()
            assert tab.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
            assert tab.evaluate("document.documentElement.scrollWidth") <= 1600
        browser.close()
    assert said == []
