"""Where scripts put their tables: between the marks `<!-- name -->` and `<!-- end of name -->`."""

from __future__ import annotations


def put_between(page, name, text):
    """Put a text between the marks of a name in a page; without these marks, say so.

    Args:
        page: path of a page.
        name: of the marks.
        text: what stands there from now on.
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    old = page.read_text(encoding="utf-8")
    if old.count(start) != 1 or old.count(end) != 1:
        raise SystemExit(f"{page.name} has no lines {start} and {end}")
    before, after = old.split(start)[0], old.split(end)[1]
    page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
