"""LaTeX that a real LaTeX accepts; the compiling test skips where there is none."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cel.benchmark import summarise
from cel.cli import app
from cel.report import write_report
from cel.report.gathered import read_shipped
from cel.report.latex import escape, number, shown, to_latex
from cel.report.paper_latex import tables_to_latex
from cel.report.paper_tables import paper_tables

HELPERS = Path(__file__).parents[1] / "browser"
DOCUMENT = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,multirow,graphicx}
\begin{document}
\input{tables}
\input{scores}
\begin{figure*}\includegraphics[width=\linewidth]{figures/local.pdf}\end{figure*}
\end{document}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HELPERS))
        import report_run

        folder = tmp_path_factory.mktemp("runs") / "de_mo & co"
        odd = {
            "a_b 100% #1": {"method": "report_run:Local"},
            "dice": {"method": "report_run:Local", "params": {"random_state": 1}},
        }
        report_run.make_run(folder, datasets=["wine", "mixed"], folds=[0, 1], methods=odd)
        made = write_report(folder, tmp_path_factory.mktemp("report"))
        out = made.page.parent / "scores.tex"
        said = CliRunner().invoke(app, ["export", str(folder), "latex", "-o", str(out)])
        assert said.exit_code == 0, said.output
        assert "2 tables written" in said.output
        yield made.page.parent
    sys.modules.pop("report_run", None)


def test_numbers_have_as_many_digits_as_their_error_deserves():
    assert shown(0.12345, 0.00456) == "0.1235±0.0046"
    assert shown(1234.5, 87.6) == "1234±88"
    assert shown(-0.00001, 0.01) == "0.000±0.010"
    assert shown(0.123456, np.nan) == "0.123"
    assert number(-0.5, 0.011, best=True) == r"$\mathbf{-0.500} \pm 0.011$"
    assert number(2.5e7, 1.0) == r"$2.5\cdot 10^{7}$"
    assert number(np.nan, np.nan) == "--"


def test_every_special_character_is_printed():
    assert escape("a_b 50% #1 {x} ~^ \\") == (
        r"a\_b 50\% \#1 \{x\} \textasciitilde{}\textasciicircum{} \textbackslash{}"
    )


def test_exported_tables_have_caption_label_and_true_minus(written):
    text = (written / "scores.tex").read_text(encoding="utf8")
    assert text.startswith("% Needs in the preamble:")
    assert text.count(r"\caption{") == text.count(r"\label{tab:") == 2
    assert len(set(re.findall(r"\\label\{(.*?)\}", text))) == 2
    assert "mean and sample standard deviation over 2 folds" in text
    assert "l2_hamming" not in text
    assert "|" not in re.sub(r"%.*", "", text), "booktabs has no vertical rules"
    outside = re.sub(r"\$[^$]*\$", "", text)
    assert not re.search(r"& -\d", outside), "a minus is a minus, in math mode"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_tables_and_figures_compile(written):
    (written / "document.tex").write_text(DOCUMENT, encoding="utf8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(
        command, cwd=written, capture_output=True, text=True, timeout=120, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert (written / "document.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_shipped_tables_compile_and_none_is_longer_than_its_page(tmp_path):
    run = read_shipped("standard")
    (tmp_path / "tables.tex").write_text(tables_to_latex(paper_tables(run.scores, run.cells)))
    text = to_latex(summarise(run.scores), suite="standard")
    (tmp_path / "scores.tex").write_text(text)
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(set(labels)) == len(labels) > 4
    without_figure = re.sub(r"\\begin\{figure.*", "", DOCUMENT).replace(
        "\\begin{document}", "\\extrafloats{500}\\begin{document}"
    )
    (tmp_path / "document.tex").write_text(without_figure)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Float too large" not in done.stdout
    assert "Overfull" not in done.stdout
