"""Pages about the call: every block runs as printed and says what stands below it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```\n)?", re.S | re.M)


@pytest.mark.parametrize("name", ["constraints", "targets", "no_answer"])
def test_a_page_runs_as_printed(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{name}.md").read_text(encoding="utf8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") >= 1
    known: dict[str, object] = {}
    for code, shown in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, f"{name}.md", "exec"), known)
        assert said.getvalue() == shown
