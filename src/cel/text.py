"""One escape per medium: HTML, LaTeX, terminal, CSV, JSON in a page. Text is text everywhere.

Labels, reasons and names come from suites, cards, runs and errors, and may be a stranger's. None
of them may become markup, a command, a formula or an escape code where they are shown.
"""

from __future__ import annotations

import html as _html
import json
import math
import unicodedata
from typing import Any

__all__ = ["csv_table", "csv_text", "html", "latex", "page_json", "plain", "visible"]

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # categories that print nothing, or too much
_JOINERS = "\u200c\u200d"  # some scripts need them inside words
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "[": "{[}", "]": "{]}", "*": "{*}", "-": "-", "`": "{`}", "'": "{'}",
    "±": r"$\pm$", "–": "--", "—": "---", "…": r"\ldots{}", "×": r"$\times$", "²": r"$^2$",
    "≤": r"$\leq$", "≥": r"$\geq$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
}  # fmt: skip


def visible(text: object, keep: str = "") -> str:
    r"""Return a text in which nothing is hidden: control and direction characters are spelt out.

    Args:
        text: anything with a text.
        keep: control characters that stay as they are.

    >>> visible("a\x1b[2Jb\n\u202ec")
    'a\\x1b[2Jb\\n\\u202ec'
    """
    out = []
    for c in str(text):
        hidden = c < " " or (c > "~" and unicodedata.category(c) in _HIDDEN)
        out.append(ascii(c)[1:-1] if hidden and c not in keep and c not in _JOINERS else c)
    return "".join(out)


def html(text: object) -> str:
    """Return text that is itself in HTML, inside elements and inside quoted attributes.

    >>> html('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return _html.escape(visible(text))


def latex(text: object) -> str:
    r"""Return text that LaTeX prints as it is; what its fonts may lack is spelt as U+XXXX.

    >>> latex("a_b ^^5cinput{x} $#~")
    'a\\_b \\textasciicircum{}\\textasciicircum{}5cinput\\{x\\} \\$\\#\\textasciitilde{}'
    """
    return "".join(_LATEX.get(c) or _letter(c) for c in visible(text))


def _letter(c: str) -> str:
    if " " <= c <= "~" or ("\u00c0" <= c <= "\u00ff" and c not in "×÷"):
        return c
    return f"U+{ord(c):04X}"


def csv_text(value: Any) -> Any:
    """Return a value for a CSV file; a text that a spreadsheet would compute gets a quote mark.

    >>> csv_text("=1+1"), csv_text("wachter"), csv_text(-1.5)
    ("'=1+1", 'wachter', -1.5)
    """
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def csv_table(frame: Any) -> str:
    """Return a data frame as CSV text in which no cell is a formula."""
    safe = frame.rename(columns=csv_text)
    for name in safe.columns[safe.dtypes.map(lambda dtype: dtype.kind == "O")]:
        safe[name] = safe[name].map(csv_text)
    text: str = safe.to_csv(index=False)
    return text


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value that strict JSON can say: NaN and infinities become words, keys texts.

    >>> plain({"alpha": float("inf"), 1: (2, None)})
    {'alpha': 'inf', '1': [2, None]}
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > 100:
        return str(type(value).__name__)
    if isinstance(value, dict):
        return {str(k): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v, depth + 1) for v in value]
    if hasattr(value, "item") and callable(value.item) and getattr(value, "ndim", 1) == 0:
        return plain(value.item(), depth + 1)
    return str(value)


def page_json(value: Any) -> str:
    r"""Return JSON that cannot end the script element that holds it.

    >>> page_json({"a": "</script>", "b": float("nan")})
    '{"a":"\\u003c/script>","b":"nan"}'
    """
    text = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = text.encode("utf8", "backslashreplace").decode("utf8")
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
