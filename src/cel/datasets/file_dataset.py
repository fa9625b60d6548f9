"""Datasets described by a card."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from cel.config import Label
from cel.datasets.base import DatasetBase
from cel.datasets.cards import card_path, load_card
from cel.datasets.download import download
from cel.datasets.files import check_file, find_file
from cel.datasets.raw import RawBuffer, columns_of, convert
from cel.datasets.reading import read_file
from cel.datasets.specs import DatasetCard, FileSpec, SourceSpec
from cel.datasets.table import Table, build_table
from cel.errors import ConfigError, DataError
from cel.preprocessing import PreprocessingPipeline
from cel.protocols import Task

__all__ = ["FileDataset"]


class FileDataset(DatasetBase):
    """A dataset that a card describes, with rows from a file or from a generator.

    The raw file is looked for at `data_path`, beside the card, in the folders of `CEL_DATA` and in
    the cache; if it is in none of them, it is downloaded from the addresses of the card.

    Args:
        config_path: path of a card, or the name of one that comes with CEL.
        data_path: the raw file, or a folder to search first.
        binary: restrict a dataset of more than two classes to the pair that its card names.
        class_pair: restrict the rows to these two classes; they become positions 0 and 1.
        pipeline: preprocessing whose steps each fold fits; None means the default.
        options: options of the generator, for datasets without a file.

    >>> dataset = FileDataset(config_path="moons")
    >>> len(dataset), dataset.target.classes
    (1024, (0, 1))
    >>> dataset.split().space.width
    2
    """

    def __init__(
        self,
        config_path: str | os.PathLike[str],
        data_path: str | os.PathLike[str] | None = None,
        *,
        binary: bool = False,
        class_pair: Sequence[Label] | None = None,
        pipeline: PreprocessingPipeline | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.config_path = config_path
        self.data_path = data_path
        self.binary = binary
        self.class_pair = class_pair
        self.pipeline = pipeline
        self.options = options

    def __repr__(self) -> str:
        return f"FileDataset({os.fspath(self.config_path)!r})"

    @cached_property
    def card(self) -> DatasetCard:
        """The checked card."""
        return load_card(self.config_path)

    @property
    def name(self) -> str:
        """Name of the dataset, from its card."""
        return self.card.name

    def load(self) -> Table:
        """Read, check and filter all rows."""
        pair = self._pair()
        if self.card.generator is not None:
            return self._generated(pair)
        if self.options:
            raise ConfigError(
                f"{self.name!r} is read from a file and has no option {next(iter(self.options))!r}"
            )
        source, paths = self.find() or self._fetch()
        buffer = RawBuffer()
        for spec, path in zip(source.files, paths, strict=True):
            read_file(path, spec, source.format, self.card, buffer)
        notes = () if source.warning is None else (source.warning,)
        if source.warning is not None:
            warnings.warn(f"{self.name}: {source.warning}", UserWarning, stacklevel=2)
        where = " + ".join(str(p) for p in paths)
        return build_table(buffer.finish(), self.card, where, class_pair=pair, notes=notes)

    def _generated(self, pair: Sequence[Label] | None) -> Table:
        from cel.datasets.synthetic import generate

        frame = generate(str(self.card.generator), self.options or {})
        drop = self.card.rows.missing == "drop"
        raw = convert(frame, columns_of(self.card), self.name, drop=drop)
        return build_table(raw, self.card, self.name, class_pair=pair)

    def _pair(self) -> Sequence[Label] | None:
        """Return the classes to keep, None for all."""
        if self.class_pair is not None or not self.binary:
            return self.class_pair
        if self.card.task is Task.REGRESSION or len(self.card.target.classes) == 2:
            return None
        if self.card.class_pair is None:
            raise ConfigError(
                f"{self.name!r} has {len(self.card.target.classes)} classes and its card names no "
                "class_pair; choose one with class_pair=(a, b)"
            )
        return self.card.class_pair

    def find(self) -> tuple[SourceSpec, list[Path]] | None:
        """Return the first source whose files are all at hand, without opening them, or None."""
        for source in self.card.sources:
            paths = [self._find(spec, len(source.files)) for spec in source.files]
            found = [p for p in paths if p is not None]
            if len(found) == len(paths):
                return source, found
        return None

    def _find(self, spec: FileSpec, files: int) -> Path | None:
        given = None if self.data_path is None else Path(self.data_path)
        if given is not None and not given.exists():
            raise DataError(f"{given}: there is no such file or folder; check data_path")
        if given is not None and given.is_file():
            if files > 1:
                raise ConfigError(f"{self.name!r} has {files} files; give their folder instead")
            return given
        first = [] if given is None else [given]
        return find_file(spec, first, card_path(self.config_path).parent)

    def files(self) -> tuple[SourceSpec, list[Path]]:
        """Return the checked raw files, downloaded first if they are nowhere at hand."""
        found = self.find()
        if found is None:
            return self._fetch()
        source, paths = found
        for spec, path in zip(source.files, paths, strict=True):
            check_file(path, spec)
        return source, paths

    def _fetch(self) -> tuple[SourceSpec, list[Path]]:
        sources = self.card.sources
        if not sources:
            raise DataError(f"{self.name!r} is generated; there is nothing to fetch")
        complete = [s for s in sources if all(f.addresses for f in s.files)]
        source = complete[0] if complete else sources[0]
        return source, [self._get(f, len(source.files)) for f in source.files]

    def _get(self, spec: FileSpec, files: int) -> Path:
        """Return one raw file; what is at hand is checked and never replaced."""
        path = self._find(spec, files)
        if path is None:
            return download(spec, self.name)
        check_file(path, spec)
        return path
