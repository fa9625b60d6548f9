"""Write docs/modules.md: every folder and every module of the package, in its own words.

    python tools/modules.py > docs/modules.md

The words are the first sentences of the docstrings, read as text; nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "cel"
HEAD = """# The modules

What stands where, in the words of the modules themselves: the first sentence of each docstring.
`make pages` writes this page. [Architecture](architecture.md) is the map over it.
"""


def first_words(path):
    """Return the first paragraph of a module's docstring, as one line."""
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf8")))
    if not told:
        raise SystemExit(f"{path} has no docstring")
    return " ".join(told.split("\n\n")[0].split())


def _cell(text):
    return text.replace("|", "\\|")


def rooms(package=PACKAGE):
    """Return (folder, its modules) of the package and of all folders below, from the top."""
    found = sorted(p.parent for p in package.rglob("__init__.py"))
    return [(f, sorted(p for p in f.glob("*.py") if p.name != "__init__.py")) for f in found]


def page(package=PACKAGE):
    """Return the page."""
    lines = [HEAD]
    for folder, modules in rooms(package):
        name = ".".join(folder.relative_to(package.parent).parts)
        lines += [f"## {name}", "", first_words(folder / "__init__.py"), ""]
        if modules:
            lines += ["| module | |", "|---|---|"]
            lines += [f"| `{m.stem}` | {_cell(first_words(m))} |" for m in modules]
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
