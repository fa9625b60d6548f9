"""Names of every kind through every medium: they stay text."""

import csv
import io
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from cel.cli import output
from cel.cli import plain_table as tables
from cel.report.html import page_html
from cel.report.latex import to_latex
from cel.result import ExplanationResult
from cel.space import FeatureSpace
from cel.text import csv_table, csv_text, html, latex, page_json, plain, visible

NASTY = [
    "<script>document.title=1234</script>", "\"><img src=x onerror=alert(1)>", "</script><b>",
    "^^5cinput{/etc/hostname}", "\\input{/etc/passwd}", "$x_1^2$", "#1", "50%", "a&b", "{", "}",
    "~", "\\", "\\\\", "[/red]", "[bold]", "a[/red]", "[link=file:///etc/passwd]x[/link]",
    "\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1",
    "=cmd|'/c'!A0",
    "__proto__", "constructor", "toString", "a\nb", "a\r\nb", "\u202eevil", "\u2066x", "\ufeffx",
    "\u200bx", "\x00", "\ud800", "\U000e0041", "ł", "中文", "🙂", "é", " ", "'", '"', "`", "--",
    "*",
    "[x]", "x" * 300, ":bomb:", "%(x)s", "{0}", "${x}", "<!--DATA-->", "<!--SCRIPT-->", "]]>",
    "_a",
]  # fmt: skip
PIECES = [*NASTY, *"abcXYZ0123 _-./\\{}[]()$%&#^~<>\"'`|=+@*!?;:,"]


def names(count, seed=0):
    """Random texts of nasty pieces, markup, control and direction characters."""
    chance = random.Random(seed)
    out = list(NASTY)
    while len(out) < count:
        parts = chance.choices(PIECES, k=chance.randrange(1, 6))
        parts += [chr(chance.randrange(0x20 if chance.random() < 0.7 else 0, 0x2FFF))]
        chance.shuffle(parts)
        out.append("".join(parts)[:200])
    return out


class _Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


def _check_html(name):
    seen = _Seen()
    seen.feed(f'<p title="{html(name)}">{html(name)}</p>')
    assert seen.tags == ["p"]
    assert seen.text == visible(name)


def _check_csv(name):
    table = pd.DataFrame({"method": pd.Series([name], dtype=object), "value": [-1.5]})
    (_, (cell, number)) = csv.reader(io.StringIO(csv_table(table)))
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell.removeprefix("'") == visible(name).removeprefix("'")
    assert number == "-1.5"


def _check_terminal(name):
    out = io.StringIO()
    console = output._console(file=out, width=20_000, force_terminal=False)
    console.print(name, markup=False, highlight=False, soft_wrap=True)
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out.getvalue()
    )


def _check_latex(name):
    text = latex(name)
    words = r"\\(text(backslash|asciicircum|asciitilde|less|greater|bar)|ldots)\{\}"
    marks = r"\\[{}$&#%_]|\{[\[\]*`']\}|\$(\\[a-z]+|\^2)\$"
    bare = re.sub(f"{words}|{marks}", "", text)
    assert not set(bare) & set("\\{}$&#%_^~<>|[]*\n"), (name, text)
    assert all(" " <= c <= "~" or "\u00c0" <= c <= "\u00ff" for c in bare)


def _check_json(name):
    text = page_json({name: name, "n": float("inf")})
    assert "<" not in text
    assert "\u2028" not in text
    text.encode("utf8")


def _check(count, seed):
    for name in names(count, seed):
        for check in (_check_html, _check_csv, _check_terminal, _check_latex, _check_json):
            check(name)


def test_names_stay_text():
    _check(1_000, seed=0)


@pytest.mark.slow
def test_ten_thousand_names_stay_text():
    _check(10_000, seed=1)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("count", [120, pytest.param(10_000, marks=pytest.mark.slow)])
def test_latex_compiles_and_opens_no_file(tmp_path, count):
    """D7: `^^5cinput{...}` opened a file, `$` and `#` ended the compilation."""
    chosen = [n for n in names(count, seed=2) if "\ud800" not in n]  # refused as a label
    count = len(chosen)
    lines = [
        {"dataset": f"{i} {d}", "model": "lr", "method": m, "metric": "lof", "mean": 1.0,
         "std": 0.1, "folds": 5}
        for i, (d, m) in enumerate(zip(chosen, reversed(chosen), strict=True))
    ]  # fmt: skip
    parts = [
        to_latex(pd.DataFrame(lines[i : i + 20]), ["lof"], caption=chosen[i])
        for i in range(0, count, 20)
    ]
    body = "\n".join(p + "\n\\clearpage" for p in parts)
    body = body.replace("table*", "table")
    head = r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}"
    head += r"\usepackage{booktabs,multirow,graphicx,textcomp}\begin{document}"
    (tmp_path / "t.tex").write_text(head + body + r"\end{document}", encoding="utf8")
    made = subprocess.run(
        ["pdflatex", "-halt-on-error", "-recorder", "-no-shell-escape", "t.tex"],
        cwd=tmp_path, capture_output=True, timeout=900, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout[-3000:].decode("latin-1")
    opened = (tmp_path / "t.fls").read_text()
    assert "/etc/" not in opened.replace("/etc/texmf", "").replace("/etc/fonts", "")


def _result(method="m", status="found", labels=("a", "b")):
    x = np.zeros((2, 2), dtype=np.float32)
    return ExplanationResult(
        x_origs=x, x_cfs=x + 1, y_origs=np.zeros(2, dtype=int),
        y_cf_targets=np.ones(2, dtype=int), y_cfs=np.ones(2, dtype=int),
        status=np.array([status, status], dtype=object), source_ids=np.array(labels, dtype=object),
        space=FeatureSpace.continuous(2), method=method,
    )  # fmt: skip


@pytest.mark.parametrize("name", [*NASTY[:6], "\u202eevil", "\x1b[2J"])
def test_the_notebook_view_runs_nothing(name):
    """D6: a script in the name of the method ran. The markup is that of a harmless name."""
    seen, harmless = _Seen(), _Seen()
    seen.feed(_result(name, labels=(name, "b"))._repr_html_())
    harmless.feed(_result("m", labels=("a", "b"))._repr_html_())
    assert (seen.tags, seen.attributes) == (harmless.tags, harmless.attributes)
    assert not {"script", "img", "iframe", "link", "a"} & set(harmless.tags)
    assert "\x1b" not in seen.text
    assert "\u202e" not in seen.text


@pytest.mark.parametrize("name", NASTY)
def test_tables_of_the_terminal_take_any_label(name, monkeypatch):
    """D8: `a[/red]` ended `cel run` with a MarkupError after all work."""
    out = io.StringIO()
    made = output._console(file=out, width=20_000)
    monkeypatch.setattr(tables, "console", lambda: made)
    tables.show_table(name, ["method", name], [[name, "1"], ["x", name]])
    assert "\x1b" not in out.getvalue()


def test_plain_text_is_left_alone():
    for name in ("wachter", "Größe é", "a b", "age > 3"):
        assert visible(name) == name
        assert csv_text(name) == name
    assert csv_text(3) == 3
    assert plain({"a": (1, np.float64("nan"), None)}) == {"a": [1, "nan", None]}


def test_the_page_has_a_policy_without_unsafe_inline():
    """Scripts and styles by their hashes; nothing is loaded, no base, no form."""
    import base64
    import hashlib

    page = page_html({"meta": {"suite": "<!--SCRIPT--></title><script>x"}})
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', page)
    assert "unsafe" not in policy
    for part in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"):
        assert part in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert scripts
    for text in scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_maps_by_label_have_no_prototype():
    """A label `__proto__` was an error of the page: lookups by label go through `blank()`."""
    from importlib import resources

    folder = resources.files("cel.report") / "assets"
    core = (folder / "core.js").read_text(encoding="utf8")
    assert "Object.create(null)" in core
    for name in ("state.js", "view_tables.js"):
        assert not re.search(
            r"(sizes|alike|out) = \{\}", (folder / name).read_text(encoding="utf8")
        )


def test_long_labels_are_cut_where_they_are_titles():
    """A label of 10,000 characters made a page 76,649 pixels wide."""
    from cel.report.appearance import dataset_title, method_title

    assert len(method_title("x" * 10_000)) <= 60
    assert len(dataset_title("y" * 10_000)) <= 60
