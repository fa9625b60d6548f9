"""Paths and small files that come from somebody else: checked, bounded, never through a link.

A card, a suite or a run may come from a stranger. What it names is a path *below* a folder that
the user chose; `inside` is the one function that turns such a name into a path. Inside a run no
link is followed, neither for reading nor for writing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from cel.errors import ConfigError, StoreError

__all__ = [
    "MAX_JSON",
    "MAX_NAME",
    "checksum",
    "file_name",
    "inside",
    "is_plain_file",
    "read_bytes",
    "read_json",
    "relative_path",
    "replacing",
    "unlinked",
    "write_text",
]

MAX_NAME = 200  # characters of one file name; file systems end at 255 bytes
MAX_JSON = 64 * 2**20
_BLOCK = 1 << 20
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)


def file_name(text: str, what: str = "name") -> str:
    """Return `text` if it can be the name of one file or folder, and nothing more.

    >>> file_name("my suite")
    'my suite'
    >>> file_name("../escaped")
    Traceback (most recent call last):
    cel.errors.ConfigError: name '../escaped' leads out of its folder; use a plain name
    """
    if not isinstance(text, str):
        raise ConfigError(f"{what} {text!r} is not text; put it in quotes")
    shown = text if len(text) <= 80 else text[:80] + "..."
    if not text.strip() or text in (".", ".."):
        raise ConfigError(f"{what} {shown!r} is no name; give one")
    if len(text) > MAX_NAME:
        raise ConfigError(f"{what} {shown!r} is longer than {MAX_NAME} characters; shorten it")
    if "/" in text or "\\" in text:
        raise ConfigError(f"{what} {shown!r} leads out of its folder; use a plain name")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in text):
        raise ConfigError(f"{what} {shown!r} holds a control character; remove it")
    return text


def relative_path(text: str, what: str = "path") -> PurePosixPath:
    """Return a path below some folder, given as in a file: with slashes, without `..`.

    >>> relative_path("adult/adult_raw.csv").name
    'adult_raw.csv'
    >>> relative_path("/etc/passwd")
    Traceback (most recent call last):
    cel.errors.ConfigError: path '/etc/passwd' is absolute; name a file below the folder
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{what} {text!r} names no file; give one")
    shown = text if len(text) <= 80 else text[:80] + "..."
    if PurePosixPath(text).is_absolute() or PureWindowsPath(text).anchor:
        raise ConfigError(f"{what} {shown!r} is absolute; name a file below the folder")
    parts = text.split("/")
    if ".." in parts or text.startswith("~"):
        raise ConfigError(f"{what} {shown!r} leads out of its folder; name a file below it")
    for part in parts:
        if part not in ("", "."):
            file_name(part, what)
    return PurePosixPath(text)


def inside(folder: Path, text: str, what: str = "path") -> Path:
    """Return the path that a file names, or raise if it is not below `folder`, links included.

    The folder itself may be a link: it is the user's choice. What lies below may not lead out.
    """
    path = folder / relative_path(text, what)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{what} {text!r} leads out of {folder} through a link; put the file itself there"
        )
    return path


def unlinked(root: Path, *parts: str) -> Path:
    """Return `root/parts...`, or raise if anything below `root` on the way is a link."""
    path = root
    for part in parts:
        for name in PurePosixPath(part).parts:
            if name in ("..", "/"):
                raise StoreError(f"{part!r} leads out of {root}; it was not written by CEL")
            path = path / name
            if path.is_symlink():
                raise StoreError(
                    f"{path} is a link; links inside a run are not followed, remove it"
                )
    return path


def is_plain_file(path: Path) -> bool:
    """Tell whether `path` is a file itself: no link, no folder, no device, no pipe."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def _opened(path: Path, *, follow: bool = False) -> Iterator[int]:
    """Give the descriptor of a regular file; nothing that could wait or never end is opened."""
    flags = os.O_RDONLY | _NONBLOCK | (0 if follow else _NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"{path} cannot be read ({reason}); check it") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{path} is not a plain file; remove it")
        yield descriptor
    finally:
        os.close(descriptor)


def read_bytes(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """Return what a plain file holds; one of more than `limit` bytes is refused.

    Args:
        path: the file.
        limit: most bytes that are read.
        follow: read through a link; only for what the user named.
    """
    with _opened(path, follow=follow) as descriptor:
        parts, size = [], 0
        while block := os.read(descriptor, min(_BLOCK, limit + 1 - size)):
            parts.append(block)
            size += len(block)
            if size > limit:
                raise StoreError(f"{path} is larger than {limit:,} bytes; it is none of ours")
    return b"".join(parts)


def read_json(path: Path, limit: int = MAX_JSON, *, way_out: str = "remove it") -> Any:
    """Return the value in a JSON file; whatever is wrong with it becomes a StoreError.

    Args:
        path: the file.
        limit: most bytes that are read.
        way_out: what a user can do about a damaged file.
    """
    try:
        return json.loads(read_bytes(path, limit))
    except RecursionError:
        raise StoreError(f"{path} is damaged (nested too deeply); {way_out}") from None
    except ValueError as error:  # also UnicodeDecodeError and numbers of too many digits
        raise StoreError(f"{path} is damaged ({str(error)[:200]}); {way_out}") from None


def checksum(path: Path) -> str:
    """Return the digest of a plain file, read in blocks."""
    digest = hashlib.blake2b(digest_size=16)
    with _opened(path) as descriptor:
        while block := os.read(descriptor, _BLOCK):
            digest.update(block)
    return digest.hexdigest()


def replacing(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` make a file under a temporary name and move it to `path` in one step.

    A link at `path` is replaced, not followed; after an error there is no half-written file.
    """
    temporary = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex[:8]}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NOFOLLOW, 0o666))
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all; a link at `path` is replaced, not followed."""
    data = text.encode("utf8", errors="backslashreplace")
    replacing(path, lambda temporary: temporary.write_bytes(data))
