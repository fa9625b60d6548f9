"""What a dataset card may say; every key of the YAML files is defined here."""

from __future__ import annotations

from typing import ClassVar, Literal

from cel.config import Label, StrictModel, unkeyed
from cel.paths import relative_path
from cel.protocols import Task
from cel.registry import did_you_mean

__all__ = [
    "MAX_BYTES",
    "MAX_CATEGORIES",
    "ClassSpec",
    "DatasetCard",
    "FeatureSpec",
    "FileSpec",
    "ImplicationSpec",
    "PaperSpec",
    "ReadSpec",
    "RelationSpec",
    "RowsSpec",
    "SourceSpec",
    "TargetSpec",
]

MAX_BYTES = 2 * 2**30  # of one raw file, unless its card states another size
MAX_CATEGORIES = 1000  # more would make one-hot blocks that nothing downstream can use


class FileSpec(StrictModel):
    """One raw file: where it is looked for, what it must hash to, where it can be had.

    `sha256` and `size` are those of the uncompressed bytes; compressed copies are welcome
    everywhere. No more than `size` bytes are read or downloaded, 2 GiB if it is not given.
    """

    path: str
    sha256: str | None = None
    addresses: tuple[str, ...] = ()
    size: int | None = unkeyed(None)

    @property
    def most(self) -> int:
        """Most bytes that are read or received."""
        return MAX_BYTES if self.size is None else self.size

    def check(self) -> None:
        """The path stays below the folders that are searched; a hash has 64 digits."""
        relative_path(self.path)
        if self.size is not None and self.size < 1:
            raise ValueError(f"size is the number of bytes of the file, not {self.size}")
        digits = self.sha256
        if digits is not None and (len(digits) != 64 or set(digits) - set("0123456789abcdef")):
            raise ValueError(f"sha256 needs 64 lower-case hexadecimal digits, got {digits!r}")


class SourceSpec(StrictModel):
    """Files that, one below the other, are the table; a `warning` marks a stand-in."""

    files: tuple[FileSpec, ...]
    format: Literal["csv", "arff"] = "csv"
    warning: str | None = None


class ReadSpec(StrictModel):
    """How the text is read; words in numeric columns named by `coerce` count as missing."""

    separator: str = ","
    encoding: str = "utf-8"
    skipinitialspace: bool = False
    na_values: tuple[str, ...] = ()
    coerce: tuple[str, ...] = ()

    def check(self) -> None:
        """The separator is one character, not a pattern; the encoding is one of text."""
        if len(self.separator) != 1 or self.separator in '\r\n\x00"':
            raise ValueError(f"separator is one character, not {self.separator[:20]!r}")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError):
            raise ValueError(f"there is no encoding {self.encoding[:40]!r}") from None


class FeatureSpec(StrictModel):
    """One input: its values and what may happen to it.

    `column` is its header in the file if that differs from `name`. `special` numbers are codes
    outside the bounds that occur but should not be reached.
    """

    name: str
    column: str | None = None
    kind: Literal["continuous", "integer", "ordinal", "categorical"]
    categories: tuple[Label, ...] = ()
    lower: float | None = None
    upper: float | None = None
    special: tuple[float, ...] = ()
    mutable: bool = True
    direction: Literal["any", "up", "down"] = "any"
    allowed: tuple[Label, ...] | None = None
    weight: float = 1.0
    protected: bool = False
    note: str | None = None
    actionable: bool | None = None
    parents: tuple[str, ...] = ()
    _later: ClassVar[tuple[str, ...]] = ("actionable", "parents")

    @property
    def is_label(self) -> bool:
        """Whether the values are labels; such features count as categorical in tables."""
        return self.kind in ("ordinal", "categorical")

    @property
    def header(self) -> str:
        """Name of the column in the file."""
        return self.name if self.column is None else self.column

    def check(self) -> None:
        """Labels have categories, numbers have bounds, never both."""
        where = f"feature {self.name!r}"
        if self.is_label and not self.categories:
            raise ValueError(f"{where}: a {self.kind} feature needs `categories`")
        if len(self.categories) > MAX_CATEGORIES:
            raise ValueError(
                f"{where}: {len(self.categories):,} categories, at most {MAX_CATEGORIES:,} are "
                "possible; group the rare ones, declare a number, or list the column under `drop`"
            )
        if not self.is_label and (self.categories or self.allowed is not None):
            raise ValueError(f"{where}: `categories` and `allowed` do not apply to {self.kind}")
        if self.is_label and (self.lower is not None or self.upper is not None or self.special):
            raise ValueError(f"{where}: bounds are for numbers; use `allowed` for {self.kind}")
        if self.allowed is not None and not self.allowed:
            raise ValueError(f"{where}: `allowed` is empty; write `mutable: false` instead")


class ClassSpec(StrictModel):
    """One class: its label and the raw values that mean it (its label, if none are given)."""

    label: Label
    values: tuple[Label, ...] = ()


class TargetSpec(StrictModel):
    """The outcome: one column with classes, or one or more columns with numbers."""

    columns: tuple[str, ...]
    classes: tuple[ClassSpec, ...] = ()
    desired: Label | None = None

    @property
    def labels(self) -> tuple[Label, ...]:
        """Class labels in position order."""
        return tuple(c.label for c in self.classes)


class RowsSpec(StrictModel):
    """Which rows are kept: missing values, values to keep by column, balancing, sampling."""

    missing: Literal["error", "drop", "keep"] = "error"
    keep: dict[str, tuple[Label, ...]] | None = None
    downsample: bool = False
    sample: int | None = None
    seed: int = 42


class RelationSpec(StrictModel):
    """The relation `sum(coefficient * feature) <= bound`."""

    terms: dict[str, float]
    bound: float = 0.0


class ImplicationSpec(StrictModel):
    """If one feature has one of some values, another feature has one of others."""

    given: dict[str, tuple[Label, ...]]
    then: dict[str, tuple[Label, ...]]

    def check(self) -> None:
        """Each side names one feature and at least one value."""
        for side in (self.given, self.then):
            if len(side) != 1 or not all(side.values()):
                raise ValueError("each side is one `feature: [values]`; write one rule per pair")


class PaperSpec(StrictModel):
    """The row of the paper's dataset table, to compare with what is loaded; shares in percent."""

    rows: int
    categorical: int
    numerical: int
    classes: int | None = None
    label_shares: tuple[float, ...] = ()


class DatasetCard(StrictModel):
    """Everything known about a dataset before a row has been seen."""

    name: str
    title: str
    task: Task
    description: str = ""
    licence: str = "unknown"
    citation: str = ""
    references: tuple[str, ...] = ()
    sources: tuple[SourceSpec, ...] = ()
    generator: str | None = None
    read: ReadSpec = ReadSpec()
    features: tuple[FeatureSpec, ...]
    drop: tuple[str, ...] = ()
    target: TargetSpec
    class_pair: tuple[Label, Label] | None = None
    rows: RowsSpec = RowsSpec()
    relations: tuple[RelationSpec, ...] = ()
    implications: tuple[ImplicationSpec, ...] = ()
    paper: PaperSpec | None = None
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """Columns are named once, and the target fits the task."""
        if bool(self.sources) == (self.generator is not None):
            raise ValueError("give either `sources` or `generator`")
        columns = [f.header for f in self.features] + [*self.target.columns, *self.drop]
        twice = sorted({c for c in columns if columns.count(c) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is listed twice (features, target, drop)")
        if not self.target.columns:
            raise ValueError("target.columns is empty; name the column to predict")
        if self.task is Task.REGRESSION:
            self._check_numbers()
        else:
            self._check_classes()

    def _check_numbers(self) -> None:
        given = (self.target.classes, self.class_pair, self.target.desired, self.rows.downsample)
        if any(value not in ((), None, False) for value in given):
            raise ValueError("classes, desired, class_pair and downsample need classification")

    def _check_classes(self) -> None:
        labels = self.target.labels
        if len(self.target.columns) != 1 or len(labels) < 2:
            raise ValueError("classification needs one target column and two or more classes")
        if len(set(labels)) != len(labels):
            raise ValueError(f"target.classes: a class is listed twice: {list(labels)}")
        pair = self.class_pair or labels
        desired = self.target.desired
        for label in (*pair, *(() if desired is None else (desired,))):
            if label not in labels:
                hint = did_you_mean(str(label), map(str, labels))
                raise ValueError(f"there is no class {label!r}; {hint}")
        if len(set(pair)) < 2:
            raise ValueError("class_pair needs two different classes")
        if desired is not None and desired not in pair:
            raise ValueError(f"the desired class {desired!r} is not in class_pair {list(pair)}")
