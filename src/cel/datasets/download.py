"""Download raw files into the cache: checked first, then moved into place in one step."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cel.datasets.files import cache_dir, check_file
from cel.datasets.specs import FileSpec
from cel.errors import DataError
from cel.paths import inside

__all__ = ["download"]

TOTAL_TIME_S = 1800.0  # seconds for one download
_TIMEOUT = 30.0  # seconds without an answer
_PART = ".part-"


@contextmanager
def _progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Give a function that counts received bytes on a bar on stderr."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(escape(label)), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda size: progress.update(task, advance=size)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """Give a folder that vanishes, also when the process is asked to end.

    What a killed process left behind more than a day ago is removed as well.
    """
    for old in parent.glob(f"{_PART}*"):
        if time.time() - old.lstat().st_mtime > 86_400 and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
    earlier: Any = None
    main = threading.current_thread() is threading.main_thread()
    if main:
        earlier = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=_PART) as folder:
            yield Path(folder)
    finally:
        if main:
            signal.signal(signal.SIGTERM, earlier)


def download(spec: FileSpec, name: str) -> Path:
    """Download a file of the dataset `name` from the first address that delivers it.

    The bytes go to a temporary folder beside the destination, are unpacked if they are gzipped or
    zipped, are compared with the sha256 of the card, and only then get their final name. A file of
    more than the card's `size` (or 2 GiB) is refused, packed or not, and so is one that takes
    longer than half an hour.

    Returns:
        Path of the uncompressed file in the cache.
    """
    target = inside(cache_dir(), spec.path.removesuffix(".gz"))
    problems = []
    for address in spec.addresses:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _temporary_folder(target.parent) as folder:
                part = folder / target.name
                _receive(address, part, spec.most)
                part = _unpack(part, spec.most)
                check_file(part, spec)
                _keep(part, target, spec)
                return target
        except DataError as error:
            problems.append(f"{address}: {str(error).split(': ', 1)[-1]}")
        except OSError as error:  # requests' errors are OSErrors
            problems.append(f"{address}: {_reason(error)}")
    tried = "; ".join(problems) or "the card names no address"
    expected = f" (sha256 {spec.sha256})" if spec.sha256 else ""
    raise DataError(
        f"dataset {name!r} needs {spec.path}, which is in none of the searched folders and could "
        f"not be downloaded: {tried}. Get the file{expected} and put it as {spec.path} into a "
        "folder that CEL_DATA names"
    )


def _keep(part: Path, target: Path, spec: FileSpec) -> None:
    """Move a checked file into the cache; one that is there already is never replaced."""
    if target.exists():
        check_file(target, spec)
    else:
        os.replace(part, target)


def _receive(address: str, part: Path, most: int) -> None:
    """Write what an address delivers; stop at `most` bytes or when the time is over."""
    import requests
    from urllib3.exceptions import HTTPError

    end = time.monotonic() + TOTAL_TIME_S
    try:
        with requests.get(address, stream=True, timeout=_TIMEOUT) as response:
            response.raise_for_status()
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            with _progress_bar(part.name, total) as count, part.open("wb") as out:
                for block in _blocks(response.raw, end):
                    out.write(block)
                    count(len(block))
                    _check_size(out.tell(), most)
            packed = response.headers.get("Content-Encoding")
            if total is not None and not packed and part.stat().st_size < total:
                raise DataError(f"{part}: the download was cut off before its end")
    except ValueError as error:  # DataErrors have their text already
        if isinstance(error, DataError):
            raise
        raise DataError(f"{part}: not a usable address: {error}") from None
    except HTTPError as error:
        raise DataError(f"{part}: the download was cut off before its end ({error})") from None


def _blocks(raw: Any, end: float) -> Iterator[bytes]:
    """Give what arrives, piece by piece, so that a slow server cannot hide the time."""
    read = getattr(raw, "read1", raw.read)
    while block := read(1 << 16, decode_content=True):
        yield block
        if time.monotonic() > end:
            raise DataError(f"download: took longer than {TOTAL_TIME_S:.0f} seconds; given up")


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise DataError(
            f"download: holds more than {most:,} bytes; if that is right, state the number of "
            "bytes as `size` of the file in the card"
        )


def _unpack(part: Path, most: int) -> Path:
    """Return the file, or what is inside if it is a gzip file or a zip file with one member."""
    with part.open("rb") as stream:
        magic = stream.read(4)
    plain = part.with_name(part.name + ".unpacked")
    try:
        if magic.startswith(b"\x1f\x8b"):
            with gzip.open(part) as packed:
                _copy(packed, plain, most)
        elif magic == b"PK\x03\x04":
            with zipfile.ZipFile(part) as archive:
                members = [m for m in archive.infolist() if not m.is_dir()]
                if len(members) != 1:
                    raise DataError(f"{part}: the archive holds {len(members)} files, not one")
                with archive.open(members[0]) as packed:
                    _copy(packed, plain, most)
        else:
            return part
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise DataError(f"{part}: the archive is cut off or damaged ({error})") from None
    except (NotImplementedError, RuntimeError) as error:  # a method or a password of zip files
        raise DataError(f"{part}: the archive cannot be unpacked ({error})") from None
    return plain


def _copy(packed: IO[bytes] | gzip.GzipFile, plain: Path, most: int) -> None:
    with plain.open("wb") as out:
        while block := packed.read(1 << 18):
            out.write(block)
            _check_size(out.tell(), most)


def _reason(error: OSError) -> str:
    """Return one short line; the texts of nested network errors go on for half a page."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    name = type(error).__name__
    if name in ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ProxyError"):
        return f"no connection ({name}); check the network"
    if name == "ChunkedEncodingError":
        return "the download was cut off before its end"
    return f"{name}: {str(error)[:200]}"
