"""Methods for drills: a quick honest one and several that misbehave.

They have no `name`, so that they are reached as `drill_methods:Class` only.
"""

import os
import signal
import time

import torch

from cel.cf_methods import BaseCounterfactualMethod, LocalMixin


class Shells(LocalMixin, BaseCounterfactualMethod):
    """Random points in growing boxes; quick and independent of batch-mates."""

    delay = 0.0

    def _explain(self, query):
        time.sleep(self.delay)
        best = torch.full_like(query.x, torch.nan)
        for step in range(1, 9):
            noise = (query.rng.uniform(32, query.x.shape[1]) * 2 - 1) * step / 8
            rows = query.rows().repeat_interleave(32)
            seen, ok = query.accept((query.x[:, None] + noise).flatten(0, 1), rows)
            ok = ok.reshape(-1, 32)
            first = seen.reshape(len(query), 32, -1)[query.rows(), ok.to(torch.uint8).argmax(1)]
            best = torch.where((ok.any(1) & best.isnan().any(1))[:, None], first, best)
        return best


class SlowShells(Shells):
    delay = 0.3


class Raises(Shells):
    def _explain(self, query):
        raise RuntimeError("this method is broken on purpose")


class Hangs(Shells):
    def _explain(self, query):
        while True:
            time.sleep(0.1)


class WrongShape(Shells):
    def _explain(self, query):
        return query.x[:, :1]


class EatsMemory(Shells):
    def _explain(self, query):
        hoard = []
        while True:
            hoard.append(torch.ones(2**24))
            time.sleep(0.01)


class Dies(Shells):
    def _explain(self, query):
        os.kill(os.getpid(), signal.SIGKILL)
