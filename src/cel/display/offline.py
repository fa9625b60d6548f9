"""Pages that load nothing: one policy for all of them, and the frame of simple ones."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from cel.paths import write_text
from cel.text import html

__all__ = ["page_policy", "simple_page", "write_page"]


def page_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a policy under which these very texts run, nothing else does, nothing is loaded.

    >>> page_policy([], ["p {}"]).split("; ")[:2]
    ["default-src 'none'", "style-src-elem 'sha256-SNJDlN1Iy2mnt7DOjQIyDb2LQE6O5PQiSZomcdzawQ4='"]
    """
    run = [f"script-src {' '.join(map(_hash, scripts))}"] if scripts else []
    return "; ".join(
        [
            "default-src 'none'",
            *run,
            f"style-src-elem {' '.join(map(_hash, styles))}",
            "style-src-attr 'none'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def simple_page(title: str, body: str) -> str:
    """Return a whole page without scripts, light or dark as the reader's system is.

    Args:
        title: text, escaped here.
        body: HTML whose texts are escaped already.
    """
    style = (resources.files("cel.display") / "assets" / "person.css").read_text(encoding="utf8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{page_policy([], [style])}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def write_page(path: str | Path, text: str) -> Path:
    """Write a page completely or not at all; return where it is."""
    target = Path(path)
    write_text(target, text)
    return target


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
