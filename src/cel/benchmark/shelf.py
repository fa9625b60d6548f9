"""Trained models that run folders share: trained once, borrowed by all later runs.

    SHELF/<version>-<device>/objects/<stage>/<key>/   as in a run folder (`cel.benchmark.store`)
    SHELF/<version>-<device>/claims/<stage>.<key>     somebody is training this right now

A run copies what it borrows, so that its folder stays whole when it is moved or merged. Entries
are named by everything that determines them; what a user's own module has trained is not put on
the shelf, because a key does not see the code of a stranger. A damaged entry is thrown away and
trained again. Whoever trains holds a claim, a file that is touched every second: others wait for
the model. A claim that is not touched for some seconds belonged to a process that died, and goes
to the next one. No clocks of different machines are compared.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import cel
from cel.benchmark.plan import Block
from cel.benchmark.spec import Suite
from cel.benchmark.store import Store
from cel.errors import CelError
from cel.paths import file_name

__all__ = ["AUTOENCODER", "JUDGE", "Shelf", "default_shelf", "may_be_shared", "shelf_folder"]

JUDGE = "judge."  # before the name of a judge: the stage in which it is fitted
AUTOENCODER = "autoencoder."  # before the key of an autoencoder: the stage in which it is fitted
BEAT_S = 1.0  # between touches of a claim
DEAD_S = 10.0  # a claim that is not touched for so long is nobody's
POLL_S = 0.2


def default_shelf() -> Path:
    """Return where runs share their models: `CEL_STORE`, or a folder of the user's cache."""
    from cel.datasets.files import cache_dir

    return Path(os.environ.get("CEL_STORE") or cache_dir() / "store")


def may_be_shared(suite: Suite, block: Block, stage: str) -> bool:
    """Tell whether all that a model of this block comes from is the library's own."""
    if stage.startswith(AUTOENCODER):
        return True  # of the library, on rows alone: no model of anybody's has a part in it
    named = [block.model]
    if stage == "density":
        named.append(str(suite.density.get("model", "")))
    elif stage.startswith(JUDGE):
        named.append(str(suite.judges[stage.removeprefix(JUDGE)].get("model", "")))
    return not any(":" in name for name in named)


def shelf_folder(root: str | Path, device: str) -> Path:
    """Return the folder of this version and device below that of the shelf."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    return Path(root) / f"{cel.__version__}-{kind}"


class Shelf:
    """A store of trained models beside the run folders.

    Args:
        root: folder of the shelf; made when missing.
        device: "cpu" or "cuda", where models are trained; what CUDA trained stays apart, as it
            equals what the CPU trains only within the noise of training.
    """

    def __init__(self, root: str | Path, device: str = "cpu") -> None:
        self.store = Store(shelf_folder(root, device))

    def borrow(self, store: Store, stage: str, key: str) -> bool:
        """Copy a model into a run; tell whether the run has it now."""
        try:
            known = self.store.has(stage, key) and self.store.intact(stage, key)
            return known and (store.has(stage, key) or store.take(self.store, stage, key))
        except OSError:  # it was removed while it was read
            return False

    def lend(self, store: Store, stage: str, key: str) -> None:
        """Copy a model of a run onto the shelf; one that cannot be put there is not missed."""
        with contextlib.suppress(OSError, CelError):
            if not self.store.has(stage, key) and store.sound(stage, key):
                self.store.take(store, stage, key)

    def obtain(
        self,
        store: Store,
        stage: str,
        key: str,
        train: Callable[[], None],
        *,
        patience_s: float = 600.0,
    ) -> bool:
        """Borrow a model for a run, or train it there while others wait; tell if it was borrowed.

        Args:
            store: of the run.
            stage: name of the stage in the stores.
            key: of the model.
            train: puts the model into the store of the run.
            patience_s: how long to wait for somebody else who is training it.
        """
        begin = since = time.monotonic()
        seen: float | None = None
        while not self.borrow(store, stage, key):
            with self._claimed(stage, key) as mine:
                if mine or time.monotonic() - begin > patience_s:
                    if mine and self.borrow(store, stage, key):  # finished just now
                        return True
                    train()
                    self.lend(store, stage, key)
                    return False
            touched, now = self._touched(stage, key), time.monotonic()
            if touched != seen:
                seen, since = touched, now
            elif now - since > DEAD_S:
                self._bury(stage, key)
            time.sleep(POLL_S)
        return True

    # -- claims ------------------------------------------------------------------------------

    def _claim(self, stage: str, key: str) -> Path:
        return self.store.at("claims") / file_name(f"{stage}.{key}", "claim")

    @contextlib.contextmanager
    def _claimed(self, stage: str, key: str) -> Iterator[bool]:
        """Give whether the claim is ours; if so, it is touched until the end."""
        path = self._claim(stage, key)
        path.parent.mkdir(exist_ok=True)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            yield False
            return
        over = threading.Event()
        beat = threading.Thread(target=_beat, args=(path, over), daemon=True)
        beat.start()
        try:
            yield True
        finally:
            over.set()
            beat.join()
            path.unlink(missing_ok=True)

    def _touched(self, stage: str, key: str) -> float | None:
        try:
            return self._claim(stage, key).lstat().st_mtime
        except OSError:
            return None

    def _bury(self, stage: str, key: str) -> None:
        """Remove a dead claim; of several that try, one does."""
        path = self._claim(stage, key)
        grave = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
        with contextlib.suppress(OSError):
            os.rename(path, grave)
            grave.unlink()
            self.store.log("claim_ended", stage=stage, key=key)


def _beat(path: Path, over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        try:
            os.utime(path)
        except OSError:
            return  # somebody took it for dead; both train, which harms nobody
