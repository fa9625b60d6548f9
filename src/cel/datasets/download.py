"""Download raw files into the cache: checked first, then moved into place in one step."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cel.datasets.files import cache_dir, check_file
from cel.datasets.specs import FileSpec
from cel.errors import DataError
from cel.paths import inside

__all__ = ["download"]

_TIMEOUT = 30.0  # seconds without an answer


class _Bar:
    """The progress bar that pooch expects, drawn by rich on stderr."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    @property
    def total(self) -> float:
        """Number of bytes to come; zero if the server does not say."""
        return float(self._progress.tasks[self._task].total or 0)

    @total.setter
    def total(self, value: float) -> None:
        self._progress.update(self._task, total=value or None)

    def update(self, size: int) -> None:
        self._progress.update(self._task, advance=size)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()


@contextmanager
def _progress_bar(label: str) -> Iterator[_Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield _Bar(progress, progress.add_task(label, total=None))


def download(spec: FileSpec, name: str) -> Path:
    """Download a file of the dataset `name` from the first address that delivers it.

    The bytes go to a temporary folder beside the destination, are unpacked if they are gzipped or
    zipped, are compared with the sha256 of the card, and only then get their final name.

    Returns:
        Path of the uncompressed file in the cache.
    """
    target = inside(cache_dir(), spec.path.removesuffix(".gz"))
    problems = []
    for address in spec.addresses:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
                part = Path(folder) / target.name
                _receive(address, part)
                part = _unpack(part)
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


def _receive(address: str, part: Path) -> None:
    import pooch

    with _progress_bar(part.name) as bar:
        try:
            fetch = pooch.HTTPDownloader(progressbar=bar, timeout=_TIMEOUT, chunk_size=1 << 16)
            fetch(address, str(part), None)
        except ValueError as error:
            raise DataError(f"not a usable address: {error}") from None


def _unpack(part: Path) -> Path:
    """Return the file, or what is inside if it is a gzip file or a zip file with one member."""
    with part.open("rb") as stream:
        magic = stream.read(4)
    plain = part.with_name(part.name + ".unpacked")
    try:
        if magic.startswith(b"\x1f\x8b"):
            with gzip.open(part) as packed, plain.open("wb") as out:
                shutil.copyfileobj(packed, out)
        elif magic == b"PK\x03\x04":
            with zipfile.ZipFile(part) as archive:
                members = [m for m in archive.infolist() if not m.is_dir()]
                if len(members) != 1:
                    raise DataError(f"{part}: the archive holds {len(members)} files, not one")
                with archive.open(members[0]) as packed, plain.open("wb") as out:
                    shutil.copyfileobj(packed, out)
        else:
            return part
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise DataError(f"{part}: the archive is cut off or damaged ({error})") from None
    return plain


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
