"""Shows the examples of docstrings as code on the site: an extension of griffe, see mkdocs.yml."""

from __future__ import annotations

import griffe

__all__ = ["DoctestBlocks", "fenced"]


def fenced(text: str) -> str:
    """Put a fence around every doctest: from its first prompt to the next empty line.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nThat is all."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    That is all.
    """
    out: list[str] = []
    inside = False
    for line in [*text.split("\n"), ""]:
        begins = line.lstrip().startswith(">>>") and not inside
        if begins:
            out.append("```pycon")
        elif inside and not line.strip():
            out.append("```")
        inside = begins or (inside and bool(line.strip()))
        out.append(line)
    return "\n".join(out[:-1])


class DoctestBlocks(griffe.Extension):
    """Rewrites the docstrings of everything that is loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
