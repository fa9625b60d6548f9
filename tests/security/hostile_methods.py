"""Methods that touch what is not theirs, and an honest one.

They have no `name`, so that they are reached as `hostile_methods:Class` only.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np
import torch

import cel.space.region
from cel.cf_methods import BaseCounterfactualMethod, LocalMixin


class Honest(LocalMixin, BaseCounterfactualMethod):
    """A point towards the mean of the target's training rows, or nothing."""

    def _explain(self, query):
        best = torch.full_like(query.x, torch.nan)
        for step in range(1, 9):
            noise = (query.rng.uniform(32, query.x.shape[1]) * 2 - 1) * step / 8
            rows = query.rows().repeat_interleave(32)
            seen, ok = query.accept((query.x[:, None] + noise).flatten(0, 1), rows)
            ok = ok.reshape(-1, 32)
            first = seen.reshape(len(query), 32, -1)[query.rows(), ok.to(torch.uint8).argmax(1)]
            best = torch.where((ok.any(1) & best.isnan().any(1))[:, None], first, best)
        return best


class ChangesRows(Honest):
    """Works on the training rows in place."""

    def _fit(self, train):
        train.x.mul_(0.5).add_(0.1)


class ChangesModel(Honest):
    """Works on the weights of the model in place."""

    def _fit(self, train):
        with torch.no_grad():
            for weights in self.model.module_.parameters():
                weights.mul_(-3)


class Patches(Honest):
    """Replaces a function of the library."""

    def _fit(self, train):
        def broken(*_, **__):
            raise RuntimeError("patched")

        cel.space.region.Region.contains = broken

    def _explain(self, query):
        return torch.full_like(query.x, torch.nan)


class LowRecursion(Honest):
    def _fit(self, train):
        sys.setrecursionlimit(60 + len(__import__("inspect").stack()))


class MovesAway(Honest):
    """Changes the working directory."""

    def _fit(self, train):
        os.chdir("/")


def _pipes():
    """Descriptors of this process that are pipes, the standard ones left out."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                yield int(name)
        except OSError:
            continue


def _shout(text):
    for descriptor in _pipes():
        try:
            os.write(descriptor, text)
        except OSError:
            continue


class Garbage(Honest):
    """Writes nonsense into every pipe that it finds."""

    def _explain(self, query):
        _shout(b"this is no JSON\n")
        time.sleep(1)
        return query.x


class Liar(Honest):
    """Claims to be done, without the fields that the event needs and with them."""

    def _explain(self, query):
        _shout(b'{"event": "done"}\n')
        _shout(json.dumps({"event": "done", "key": "k", "label": "x"}).encode() + b"\n")
        time.sleep(1)
        return query.x


class Exits(Honest):
    def _explain(self, query):
        os._exit(3)


class SystemExits(Honest):
    def _explain(self, query):
        sys.exit(4)


class Interrupts(Honest):
    def _explain(self, query):
        raise KeyboardInterrupt


class Talks(Honest):
    """Raises with a text of 30 MB."""

    def _explain(self, query):
        raise RuntimeError("x" * 30_000_000)


class Unspeakable(Exception):  # noqa: N818
    def __str__(self):
        raise RuntimeError("no words")


class Mute(Honest):
    """Raises an error whose text raises."""

    def _explain(self, query):
        raise Unspeakable


class Prints(Honest):
    """Prints 40 MB."""

    def _explain(self, query):
        for _ in range(40):
            print("y" * 2**20)
        return super()._explain(query)


class HogChild(Honest):
    """Lets a child process take the memory."""

    def _explain(self, query):
        code = "import time; x = bytearray(3 * 10**9); x[::4096] = x[1::4096]; time.sleep(99)"
        subprocess.run([sys.executable, "-c", code], check=False)
        return query.x


class LeavesChild(Honest):
    """Ends, but leaves a process that holds its pipes open."""

    def _explain(self, query):
        subprocess.Popen(["sleep", "271"], close_fds=False, start_new_session=True)
        if os.fork() == 0:
            time.sleep(271)
            os._exit(0)
        return super()._explain(query)


class DiesWithChild(Honest):
    """Ends without a word and leaves a process that holds its pipes open."""

    def _explain(self, query):
        if os.fork() == 0:
            time.sleep(271)
            os._exit(0)
        os._exit(5)


class Slow(Honest):
    """Learns and searches longer than it may, one at a time."""

    def __init__(self, model, *, fit_s=0.0, search_s=0.0, **options):
        super().__init__(model, **options)
        self.fit_s, self.search_s = fit_s, search_s

    def _fit(self, train):
        time.sleep(self.fit_s)

    def _explain(self, query):
        time.sleep(self.search_s)
        return super()._explain(query)


class Text(Honest):
    """Raises with escape codes and markup in its text."""

    def _explain(self, query):
        raise RuntimeError("\x1b]0;owned\x07[/red]<script>alert(1)</script>\x1b[2J")


class MutatesQuery(Honest):
    """Changes what belongs to it: allowed."""

    def _explain(self, query):
        out = super()._explain(query)
        query.x.zero_()
        np.random.seed(1)
        return out
