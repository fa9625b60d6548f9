"""Raw files: where they are looked for, how they are opened and how they are checked."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from cel.datasets.specs import FileSpec
from cel.errors import DataError

__all__ = ["cache_dir", "check_file", "data_dirs", "find_file", "open_bytes", "sha256_of"]

_BLOCK = 1 << 18


def cache_dir() -> Path:
    """Return the folder of downloaded files: `CEL_CACHE`, or the user's cache folder."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("CEL_CACHE") or user_cache_dir("cel"))


def data_dirs() -> list[Path]:
    """Return the folders that are searched: those of `CEL_DATA`, then the cache."""
    given = os.environ.get("CEL_DATA", "").split(os.pathsep)
    return [Path(d).expanduser() for d in given if d] + [cache_dir()]


def find_file(spec: FileSpec, first: Sequence[Path] = ()) -> Path | None:
    """Return the file that `spec` describes, gzipped or not, or None.

    Args:
        spec: the file.
        first: folders to search before `CEL_DATA` and the cache; here the bare file name will do.
    """
    path = Path(spec.path)
    places = [d / p for d in first for p in (path, path.name)]
    places += [d / path for d in data_dirs()]
    for place in places:
        plain = place.with_suffix("") if place.suffix == ".gz" else place
        for candidate in (place, plain, plain.with_name(plain.name + ".gz")):
            if candidate.is_file():
                return candidate
    return None


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading its uncompressed bytes."""
    return cast("IO[bytes]", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def sha256_of(path: Path) -> str:
    """Return the sha256 of the uncompressed bytes, block by block."""
    digest = hashlib.sha256()
    try:
        with open_bytes(path) as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: the compressed file is cut off or damaged ({error}); delete it and fetch "
            "it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    return digest.hexdigest()


def check_file(path: Path, spec: FileSpec) -> None:
    """Raise unless `path` is a table (not empty, not a web page) with the sha256 of the card."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; check the path")
    digest = sha256_of(path)
    with open_bytes(path) as stream:
        head = stream.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        raise DataError(f"{path}: the file is empty; delete it and fetch it again")
    if head.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise DataError(
            f"{path}: holds a web page, not a table (perhaps a log-in or error page was saved); "
            "delete it and fetch it again"
        )
    if spec.sha256 is not None and digest != spec.sha256:
        raise DataError(
            f"{path}: its sha256 is {digest}, but the card says {spec.sha256}; the file is "
            "damaged or another version: delete it and fetch it again, or correct the card"
        )
