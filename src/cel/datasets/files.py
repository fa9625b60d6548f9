"""Raw files: where they are looked for, how they are opened and how they are checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self, cast

from cel.datasets.specs import MAX_BYTES, FileSpec
from cel.errors import DataError
from cel.paths import inside, relative_path

__all__ = [
    "HashedFile",
    "cache_dir",
    "check_digest",
    "check_file",
    "check_head",
    "data_dirs",
    "estimate_lines",
    "find_file",
    "open_bytes",
    "sha256_of",
]

MAX_LINE = 4 * 2**20
MAX_RATIO = 1032  # gzip cannot pack tighter
_BLOCK = 1 << 18


def cache_dir() -> Path:
    """Return the folder of downloaded files: `CEL_CACHE`, or the user's cache folder."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("CEL_CACHE") or user_cache_dir("cel"))


def data_dirs() -> list[Path]:
    """Return the folders that are searched: those of `CEL_DATA`, then the cache."""
    given = os.environ.get("CEL_DATA", "").split(os.pathsep)
    return [Path(d).expanduser() for d in given if d] + [cache_dir()]


def find_file(
    spec: FileSpec, first: Sequence[Path] = (), beside: Path | None = None
) -> Path | None:
    """Return the file that `spec` describes, gzipped or not, or None.

    In the first folders and beside the card the bare file name will do. Links in folders that the
    user named are followed; one beside the card, which may be a stranger's, must stay below it.

    Args:
        spec: the file.
        first: folders of the user to search before everything else.
        beside: folder of the card, searched before `CEL_DATA` and the cache.
    """
    path = relative_path(spec.path)
    own = [] if beside is None else [beside]
    places = [(d, p) for d in (*first, *own) for p in (path, PurePosixPath(path.name))]
    places += [(d, path) for d in data_dirs()]
    for folder, name in places:
        plain = name.with_suffix("") if name.suffix == ".gz" else name
        for candidate in (name, plain, plain.with_name(plain.name + ".gz")):
            if (folder / candidate).is_file():
                return inside(folder, str(candidate)) if folder in own else folder / candidate
    return None


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading its uncompressed bytes."""
    return cast("IO[bytes]", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def estimate_lines(path: Path) -> int:
    """Return about how many lines a file has, from its size and the length of its first ones."""
    with open_bytes(path) as stream:
        sample = stream.read(1 << 16)
    size = path.stat().st_size
    if path.suffix == ".gz":
        with path.open("rb") as packed:
            packed.seek(-4, os.SEEK_END)  # where gzip keeps the number of bytes, modulo 4 GiB
            size = min(int.from_bytes(packed.read(), "little"), size * MAX_RATIO)
    return round(size * sample.count(b"\n") / max(len(sample), 1))


class HashedFile:
    """The uncompressed bytes of a file, hashed while they are read, so that one pass is enough.

    Args:
        path: the file, gzipped or not.
        most: bytes after which reading is given up, against files that unpack without end.
    """

    def __init__(self, path: Path, most: int = MAX_BYTES) -> None:
        self._path, self._most = path, most
        self._size = self._line = 0
        self._hash = hashlib.sha256()
        try:
            self._stream: Any = open_bytes(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check it") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def reader(self) -> io.BufferedReader:
        """Return a binary stream; closing it leaves this file open."""
        return io.BufferedReader(_Tap(self), _BLOCK)

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes and return their number."""
        view = memoryview(buffer)
        try:
            size = int(self._stream.readinto(view))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(
                f"{self._path}: the compressed file is cut off or damaged ({error}); delete it "
                "and fetch it again"
            ) from None
        self._hash.update(view[:size])
        self._bound(bytes(view[:size]))
        return size

    def _bound(self, block: bytes) -> None:
        """Raise when the file, or a line of it, is longer than any table needs."""
        self._size += len(block)
        first, last = block.find(b"\n"), block.rfind(b"\n")
        longest = self._line + (len(block) if first < 0 else first)
        self._line = longest if first < 0 else len(block) - last - 1
        if max(longest, self._line) > MAX_LINE:
            raise DataError(
                f"{self._path}: a line is longer than {MAX_LINE:,} bytes; this is no table"
            )
        if self._size > self._most:
            raise DataError(
                f"{self._path}: holds more than {self._most:,} bytes; if that is right, state the "
                "number of bytes as `size` of the file in the card"
            )

    def digest(self) -> str:
        """Read what is left and return the sha256 of all bytes."""
        buffer = bytearray(_BLOCK)
        while self.readinto(buffer):
            pass
        return self._hash.hexdigest()


class _Tap(io.RawIOBase):
    """What pandas reads from and may close."""

    def __init__(self, file: HashedFile) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._file.readinto(buffer)


def sha256_of(path: Path, most: int = MAX_BYTES) -> str:
    """Return the sha256 of the uncompressed bytes, of which there may be `most`."""
    with HashedFile(path, most) as stream:
        return stream.digest()


def check_head(path: Path) -> None:
    """Raise if the file is missing, empty or a web page."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; check the path")
    with HashedFile(path) as file:
        head = file.reader().read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        raise DataError(f"{path}: the file is empty; delete it and fetch it again")
    if head.startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise DataError(
            f"{path}: holds a web page, not a table (perhaps a log-in or error page was saved); "
            "delete it and fetch it again"
        )


def check_digest(path: Path, digest: str, spec: FileSpec) -> None:
    """Raise unless the sha256 of the uncompressed bytes is the one of the card."""
    if spec.sha256 is not None and digest != spec.sha256:
        raise DataError(
            f"{path}: its sha256 is {digest}, but the card says {spec.sha256}; the file is "
            "damaged or another version: delete it and fetch it again, or correct the card"
        )


def check_file(path: Path, spec: FileSpec) -> None:
    """Raise unless `path` is a table (not empty, not a web page) with the sha256 of the card."""
    check_head(path)
    check_digest(path, sha256_of(path, spec.most), spec)
