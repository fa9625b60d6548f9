"""A folder of finished work, named by content and written atomically.

    STORE/objects/<stage>/<key>/   spec.json, data files, status.json (checksums, written last)
    STORE/failures/<key>.json      why a cell failed; never taken for a result
    STORE/log.jsonl                one event per line

An entry is made in a temporary folder and renamed into place, so it is there completely or not at
all, and two runs that finish the same entry at once do no harm. A run may come from a stranger:
every path below its folder is made by `cel.paths`, and links in it are not followed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cel
from cel.errors import CelError, ConfigError, StoreError
from cel.paths import checksum, file_name, is_plain_file, read_json, unlinked, write_text

__all__ = ["SCHEMA", "Store"]

SCHEMA = 1


class Store:
    """Finished stages by key.

    Args:
        root: folder of the store; made when missing.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()  # a change of the working directory must not move it
        self._check_schema()

    def _check_schema(self) -> None:
        marker = self.at("store.json")
        if marker.exists():
            _check_version(self.root, read_json(marker, way_out=_way_out(self.root)))
            return
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(f"{self.root} is a file; choose a folder for the run")
        begun = f".{marker.name}."  # the marker as another run is writing it
        found = list(self.root.iterdir()) if self.root.exists() else []
        if marker.exists():  # another run was quicker
            self._check_schema()
            return
        if any(not p.name.startswith(begun) for p in found):
            raise StoreError(f"{self.root} is not empty and is not a CEL store; choose another")
        self.root.mkdir(parents=True, exist_ok=True)
        write_text(marker, json.dumps({"schema": SCHEMA, "cel": cel.__version__}))

    def at(self, *parts: str) -> Path:
        """Return a path below the store; a link on the way is refused."""
        return unlinked(self.root, *parts)

    def folder(self, stage: str, key: str) -> Path:
        """Return where an entry lives."""
        return self.at("objects", file_name(stage, "stage"), file_name(key, "key"))

    def has(self, stage: str, key: str) -> bool:
        """Tell whether an entry is complete (its checksums are not read)."""
        try:
            return is_plain_file(self.folder(stage, key) / "status.json")
        except CelError:
            return False

    def sound(self, stage: str, key: str) -> bool:
        """Tell whether an entry is complete and unharmed; nothing is changed."""
        try:
            return _sound(self.folder(stage, key))
        except CelError:
            return False

    def intact(self, stage: str, key: str) -> bool:
        """Tell whether an entry is complete and unharmed; a damaged one is removed and logged."""
        path = self.at("objects", file_name(stage, "stage")) / file_name(key, "key")
        if not os.path.lexists(path):
            return False
        if self.sound(stage, key):
            return True
        self.log("damaged", stage=stage, key=key)
        _discard(path)
        return False

    @contextlib.contextmanager
    def writing(self, stage: str, key: str, spec: Any) -> Iterator[Path]:
        """Give a temporary folder; on success it becomes the entry, on failure it vanishes."""
        temporary = self._temporary(key)
        try:
            yield temporary
            (temporary / "spec.json").write_text(json.dumps(spec, default=str, indent=1))
            names = sorted(p.name for p in temporary.iterdir())
            files = {n: checksum(temporary / n) for n in names}
            write_text(temporary / "status.json", json.dumps({"files": files}))
            self._publish(temporary, self.folder(stage, key))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _temporary(self, key: str) -> Path:
        folder = self.at("tmp") / f"{key}.{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        return folder

    def _publish(self, temporary: Path, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(temporary, folder)
        except OSError:
            if not is_plain_file(folder / "status.json"):  # otherwise somebody was first
                _discard(folder)
                os.rename(temporary, folder)

    def spec(self, stage: str, key: str) -> dict[str, Any]:
        """Return what an entry was made from."""
        path = self.folder(stage, key) / "spec.json"
        return _mapping(path, read_json(path))

    def keys(self, stage: str) -> list[str]:
        """Return the keys of all complete entries of a stage."""
        folder = self.at("objects", file_name(stage, "stage"))
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if self.has(stage, p.name))

    def stages(self) -> list[str]:
        """Return the stages of which there are entries."""
        folder = self.at("objects")
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.is_symlink())

    # -- failures ----------------------------------------------------------------------------

    def fail(self, key: str, record: dict[str, Any]) -> None:
        """Remember why a cell failed."""
        self.at("failures").mkdir(exist_ok=True)
        write_text(self._failure(key), json.dumps(record, default=str, indent=1))

    def _failure(self, key: str) -> Path:
        return self.at("failures") / f"{file_name(key, 'key')}.json"

    def failure(self, key: str) -> dict[str, Any] | None:
        """Return the failure of a cell, if it failed and has not succeeded since.

        A record that cannot be read, or that says nothing, counts as none: the cell runs again.
        """
        try:
            path = self._failure(key)
            found = read_json(path) if is_plain_file(path) else None
        except CelError:
            return None
        if not isinstance(found, dict) or not isinstance(found.get("status"), str):
            return None
        return {**found, "reason": str(found.get("reason", ""))}

    def failures(self) -> list[str]:
        """Return the keys of all cells with a recorded failure."""
        folder = self.at("failures")
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        return [p.stem for p in paths if self.failure(p.stem) is not None]

    def forgive(self, key: str) -> None:
        """Forget the failure of a cell."""
        self._failure(key).unlink(missing_ok=True)

    # -- the run -----------------------------------------------------------------------------

    def log(self, event: str, **values: Any) -> None:
        """Append one line to the log."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **values}, default=str)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.at("log.jsonl"), flags, 0o666)
        with open(descriptor, "a", encoding="utf8") as file:
            file.write(line + "\n")

    def write_json(self, name: str, value: Any) -> None:
        """Write a small file at the top of the store, atomically."""
        write_text(self.root / file_name(name), json.dumps(value, default=str, indent=1))

    def read_json(self, name: str) -> Any:
        """Read a small file at the top of the store; None when missing."""
        path = self.at(file_name(name))
        return read_json(path, way_out=_way_out(self.root)) if path.exists() else None

    def sweep(self) -> None:
        """Remove what runs interrupted more than a day ago left half-written.

        Younger folders may belong to a run that is going on right now.
        """
        for folder in self.at("tmp").glob("*"):
            if time.time() - folder.lstat().st_mtime > 86_400:
                _discard(folder)

    def merge(self, other: Store) -> int:
        """Copy entries that are only in `other`; return how many. `other` is only read."""
        copied = 0
        for stage in other.stages():
            for key in other.keys(stage):
                if not self.has(stage, key) and other.sound(stage, key):
                    copied += self.take(other, stage, key)
        for key in other.failures():
            found = other.failure(key)
            if found is not None and not self.has("score", key) and self.failure(key) is None:
                self.fail(key, found)
        return copied

    def take(self, other: Store, stage: str, key: str) -> bool:
        """Copy one entry: the files that its status names, and nothing else."""
        source, temporary = other.folder(stage, key), self._temporary(key)
        try:
            for name in (*_files(source), "status.json"):
                shutil.copyfile(source / name, temporary / name, follow_symlinks=False)
            if not _sound(temporary):  # it changed while it was copied
                return False
            self._publish(temporary, self.folder(stage, key))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True


def _way_out(root: Path) -> str:
    return f"remove the folder {root}, or put the file of a copy in its place"


def _mapping(path: Path, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged (holds no mapping); remove it")
    return value


def _check_version(root: Path, marker: Any) -> None:
    found = _mapping(root / "store.json", marker).get("schema", 0)
    if not isinstance(found, int):
        raise StoreError(f"{root / 'store.json'} is damaged (schema {found!r}); {_way_out(root)}")
    if found > SCHEMA:
        raise StoreError(
            f"{root} was written by a newer version (schema {found}, this is {SCHEMA}); update "
            "CEL or choose another folder"
        )


def _files(folder: Path) -> dict[str, str]:
    """Return the files of an entry with their digests, as its status names them."""
    path = folder / "status.json"
    files = _mapping(path, _mapping(path, read_json(path)).get("files"))
    try:
        return {file_name(name): str(digest) for name, digest in files.items()}
    except ConfigError as error:
        raise StoreError(f"{path} is damaged ({error}); remove it") from None


def _sound(folder: Path) -> bool:
    """Tell whether the files of an entry are those of its status; may raise StoreError."""
    files = _files(folder)
    if {p.name for p in folder.iterdir()} != {*files, "status.json"}:
        return False
    return all(checksum(folder / name) == digest for name, digest in files.items())


def _discard(path: Path) -> None:
    """Remove an entry; of a link only the link itself."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
