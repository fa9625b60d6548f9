"""Print the lowest declared version of every dependency, one `name==version` per line.

    python tools/lowest.py > lowest.txt

They come from pyproject.toml: what the package and its extra `all` need. torch is left out, since
its wheels are large and tied to drivers; it stays at the version of constraints.txt. The tools of
the tests are not part of what is promised to users and stay at theirs as well.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"torch", "ce-library"}
PROMISED = ("bayes", "convex", "report", "dask", "files")


def lowest(project):
    """Return (name, version) of everything declared, in order."""
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(d for extra in PROMISED for d in extras[extra])]
    found = {}
    for text in declared:
        match = re.fullmatch(r"([\w.-]+)(\[[\w,]+\])?>=([\d.]+)", text)
        if match is None:
            raise SystemExit(f"{text!r} is not of the form name>=version")
        found[match.group(1)] = match.group(3)
    return {name: version for name, version in found.items() if name not in LEFT_OUT}


def main():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    for name, version in lowest(project).items():
        print(f"{name}=={version}")
        if name == "dask":
            print(f"distributed=={version}")


if __name__ == "__main__":
    main()
