"""Take the pictures of what people see: notebook, page, audit, plots and terminal.

    python benchmarks/screenshots.py [--out docs/images]

The table and the model are those of docs/your_model.md. Pages are looked at by the Chromium of the
system (playwright), once light and once dark; plots are drawn by matplotlib. Every picture is
saved with few colours, so that it stays below 60 KB.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import re
import shutil
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from PIL import Image
from playwright.sync_api import sync_playwright

import cel

ROOT = Path(__file__).parents[1]
MOST = 60_000
PAPER = "<body style='font: 13px sans-serif; background: white; margin: 12px'>"
SCREEN = (
    "<body style='margin: 0; background: #1b1f24'>"
    "<pre style='margin: 0; padding: 14px; color: #e6e6e6; font: 13px/1.45 monospace'>"
)


def people():
    """Run the first block of the page, and return what it made."""
    text = (ROOT / "docs" / "your_model.md").read_text(encoding="utf8")
    made: dict = {}
    exec(re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)[0], made)
    return made


def small(picture, path):
    """Save a picture with as many colours as its size allows."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in (256, 128, 64, 32):
        image.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size < MOST:
            return
    raise SystemExit(f"{path} has {path.stat().st_size:,} bytes with 32 colours")


def pages(made, folder):
    """Yield (name, file, width, height, colour scheme)."""
    model, frame = made["model"], made["people"][made["read"]]
    refused = made["refused"].iloc[[3, 0, 9]]
    rules = {"immutable": ["age", "job"], "ranges": {"income": (0, 5000), "debt": (5, 30)}}
    result = cel.explain(model, refused, background=frame, target="granted", **rules)
    (folder / "notebook.html").write_text(PAPER + result._repr_html_(), encoding="utf8")
    yield "people-notebook", "notebook.html", 860, None, "light"
    result.save_html(folder / "page.html", title="Refused applications")
    yield "people-page", "page.html", 760, 1000, "light"
    yield "people-page-dark", "page.html", 760, 1000, "dark"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        result.show(rows=2)
    (folder / "terminal.html").write_text(SCREEN + html.escape(said.getvalue()), encoding="utf8")
    yield "people-terminal", "terminal.html", 760, None, "dark"
    everybody = made["people"]
    audit = cel.audit(
        lambda rows: model.predict_proba(rows[made["read"]]), everybody, protected="sex",
        target="granted", classes=["granted", "refused"],
    )  # fmt: skip
    audit.save_html(folder / "audit.html")
    yield "people-audit", "audit.html", 820, 300, "light"


def plots(made):
    """Yield (name, figure)."""
    model, frame = made["model"], made["people"][made["read"]]
    result = cel.explain(model, made["refused"].head(30), background=frame, target="granted", n=4)
    label = result.source_ids[int((result.changes().groupby("row").size()).argmax())]
    yield "people-changes", result.plot("changes")
    yield "people-position", result.plot("position", row=label)
    yield "people-tradeoff", result.plot("tradeoff")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    out = parser.parse_args().out
    made = people()
    for name, figure in plots(made):
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=80)
        small(file.getvalue(), out / f"{name}.png")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as engine, tempfile.TemporaryDirectory() as place:
        chromium = engine.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, file, width, height, scheme in pages(made, Path(place)):
            size = {"width": width, "height": height or 200}
            page = chromium.new_page(viewport=size, color_scheme=scheme)
            page.goto((Path(place) / file).as_uri())
            small(page.screenshot(full_page=height is None), out / f"{name}.png")
            page.close()
        chromium.close()


if __name__ == "__main__":
    main()
