"""A folder of finished work, named by content and written atomically.

    STORE/objects/<stage>/<key>/   spec.json, data files, status.json (checksums, written last)
    STORE/failures/<key>.json      why a cell failed; never taken for a result
    STORE/log.jsonl                one event per line

An entry is made in a temporary folder and renamed into place, so it is there completely or not at
all, and two runs that finish the same entry at once do no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cel
from cel.errors import StoreError

__all__ = ["SCHEMA", "Store"]

SCHEMA = 1


class Store:
    """Finished stages by key.

    Args:
        root: folder of the store; made when missing.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._check_schema()

    def _check_schema(self) -> None:
        marker = self.root / "store.json"
        if marker.exists():
            found = json.loads(marker.read_text()).get("schema", 0)
            if found > SCHEMA:
                raise StoreError(
                    f"{self.root} was written by a newer version (schema {found}, this is "
                    f"{SCHEMA}); update CEL or choose another folder"
                )
            return
        if self.root.exists() and any(self.root.iterdir()):
            raise StoreError(f"{self.root} is not empty and is not a CEL store; choose another")
        self.root.mkdir(parents=True, exist_ok=True)
        self._write(marker, json.dumps({"schema": SCHEMA, "cel": cel.__version__}))

    def folder(self, stage: str, key: str) -> Path:
        """Return where an entry lives."""
        return self.root / "objects" / stage / key

    def has(self, stage: str, key: str) -> bool:
        """Tell whether an entry is complete (its checksums are not read)."""
        return (self.folder(stage, key) / "status.json").exists()

    def intact(self, stage: str, key: str) -> bool:
        """Tell whether an entry is complete and unharmed; a damaged one is removed and logged."""
        folder = self.folder(stage, key)
        if not folder.exists():
            return False
        try:
            files = json.loads((folder / "status.json").read_text())["files"]
            good = all(_checksum(folder / name) == digest for name, digest in files.items())
        except (OSError, ValueError, KeyError):
            good = False
        if not good:
            self.log("damaged", stage=stage, key=key)
            shutil.rmtree(folder, ignore_errors=True)
        return good

    @contextlib.contextmanager
    def writing(self, stage: str, key: str, spec: Any) -> Iterator[Path]:
        """Give a temporary folder; on success it becomes the entry, on failure it vanishes."""
        temporary = self.root / "tmp" / f"{key}.{uuid.uuid4().hex[:8]}"
        temporary.mkdir(parents=True)
        try:
            yield temporary
            (temporary / "spec.json").write_text(json.dumps(spec, default=str, indent=1))
            names = sorted(p.name for p in temporary.iterdir())
            files = {n: _checksum(temporary / n) for n in names}
            self._write(temporary / "status.json", json.dumps({"files": files}))
            self._publish(temporary, self.folder(stage, key))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _publish(self, temporary: Path, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(temporary, folder)
        except OSError:
            if not (folder / "status.json").exists():  # otherwise somebody was first
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(temporary, folder)

    def spec(self, stage: str, key: str) -> dict[str, Any]:
        """Return what an entry was made from."""
        out: dict[str, Any] = json.loads((self.folder(stage, key) / "spec.json").read_text())
        return out

    def keys(self, stage: str) -> list[str]:
        """Return the keys of all complete entries of a stage."""
        folder = self.root / "objects" / stage
        if not folder.exists():
            return []
        return sorted(p.name for p in folder.iterdir() if (p / "status.json").exists())

    # -- failures ----------------------------------------------------------------------------

    def fail(self, key: str, record: dict[str, Any]) -> None:
        """Remember why a cell failed."""
        folder = self.root / "failures"
        folder.mkdir(exist_ok=True)
        self._write(folder / f"{key}.json", json.dumps(record, default=str, indent=1))

    def failure(self, key: str) -> dict[str, Any] | None:
        """Return the failure of a cell, if it failed and has not succeeded since."""
        path = self.root / "failures" / f"{key}.json"
        if not path.exists():
            return None
        try:
            out: dict[str, Any] = json.loads(path.read_text())
        except ValueError:
            return None
        return out

    def forgive(self, key: str) -> None:
        """Forget the failure of a cell."""
        (self.root / "failures" / f"{key}.json").unlink(missing_ok=True)

    # -- the run -----------------------------------------------------------------------------

    def log(self, event: str, **values: Any) -> None:
        """Append one line to the log."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **values}, default=str)
        with open(self.root / "log.jsonl", "a", encoding="utf8") as file:
            file.write(line + "\n")

    def write_json(self, name: str, value: Any) -> None:
        """Write a small file at the top of the store, atomically."""
        self._write(self.root / name, json.dumps(value, default=str, indent=1))

    def read_json(self, name: str) -> Any:
        """Read a small file at the top of the store; None when missing."""
        path = self.root / name
        return json.loads(path.read_text()) if path.exists() else None

    def _write(self, path: Path, text: str) -> None:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            temporary.write_text(text)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what runs interrupted more than a day ago left half-written.

        Younger folders may belong to a run that is going on right now.
        """
        for folder in (self.root / "tmp").glob("*"):
            if time.time() - folder.stat().st_mtime > 86_400:
                shutil.rmtree(folder, ignore_errors=True)

    def merge(self, other: Store) -> int:
        """Copy entries that are only in `other`; return how many."""
        copied = 0
        for stage in sorted(p.name for p in (other.root / "objects").glob("*")):
            for key in other.keys(stage):
                if self.has(stage, key) or not other.intact(stage, key):
                    continue
                temporary = self.root / "tmp" / f"{key}.{uuid.uuid4().hex[:8]}"
                shutil.copytree(other.folder(stage, key), temporary)
                self._publish(temporary, self.folder(stage, key))
                shutil.rmtree(temporary, ignore_errors=True)
                copied += 1
        for path in sorted((other.root / "failures").glob("*.json")):
            if not self.has("score", path.stem) and self.failure(path.stem) is None:
                self.fail(path.stem, json.loads(path.read_text()))
        return copied


def _checksum(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
