"""Floors and gaps: what products alone would take, what every stage and line takes, and where.

    OMP_NUM_THREADS=1 python benchmarks/floors.py RUN [--dataset heloc] [--model mlp] [--write]

RUN is a folder of `cel run`. The models of one block are trained again and its lines search again,
in this process and on one thread, each twice: once to count the operations of products, distances
and factorisations of matrices, gradients included, once to take the CPU seconds. `floor` is what
these operations would take at the rate of products of 1,024 x 256 x 256, measured in the same
process, `gap` the seconds over the floor. A floor holds for a search as it is: one that asked
less would have a lower one. `where` are the modules in which computing was found, looked at every
few milliseconds: the innermost module of the library on the stack. `--write` puts the table into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cel
from cel.benchmark import kept_references, open_run
from cel.benchmark.shelf import AUTOENCODER
from cel.benchmark.stages import Workbench, model_folder, model_stages
from cel.benchmark.store import Store
from cel.errors import MissingInputError, UnsupportedError
from cel.models import fit_many
from marked import put_between

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
HOME = str(Path(cel.__file__).parent) + "/"
EVERY_S = 0.003  # of computing, between two looks
NAMED, LEAST = 4, 0.07  # modules named per line, and the share from which on
SHAPE = (1024, 256, 256)

aten = torch.ops.aten


def _product(a, b, *_):
    return 2 * a.numel() * b.shape[-1]


def _added_product(_, a, b, *__):
    return _product(a, b)


FORMULAS = {
    aten.mm: _product,
    aten.bmm: _product,
    aten.addmm: _added_product,
    aten.baddbmm: _added_product,
    aten.mv: lambda a, _: 2 * a.numel(),
    aten.addmv: lambda _, a, __: 2 * a.numel(),
    aten.dot: lambda a, _: 2 * a.numel(),
    aten.linear: lambda x, weight, *_: 2 * x.numel() * weight.shape[0],
    aten._cdist_forward: lambda a, b, *_: 3 * a.numel() * b.shape[-2],
    aten.linalg_cholesky_ex: lambda a, *_: a.numel() * a.shape[-1] / 3,
    aten.linalg_solve_triangular: lambda a, b, *_: a.shape[-1] * b.numel(),
    aten.cholesky_solve: lambda b, a, *_: 2 * a.shape[-1] * b.numel(),
    aten.linalg_lu_factor_ex: lambda a, *_: 2 * a.numel() * a.shape[-1] / 3,
    aten._linalg_solve_ex: lambda a, *_: 2 * a.numel() * a.shape[-1] / 3,
}


class Counted(TorchDispatchMode):
    """Counts the operations of what is asked inside."""

    def __init__(self):
        super().__init__()
        self.operations = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        formula = FORMULAS.get(func.overloadpacket)
        if formula is not None:
            self.operations += formula(*args)
        return func(*args, **(kwargs or {}))


@contextmanager
def sampled():
    """Yield a counter of the modules in which computing is found."""
    found = Counter()

    def look(_, frame):
        while frame is not None and not frame.f_code.co_filename.startswith(HOME):
            frame = frame.f_back
        found["elsewhere" if frame is None else name_of(frame.f_code.co_filename)] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def name_of(path):
    """Return a module by the last two parts of its name.

    >>> name_of(HOME + "space/projection.py")
    'space.projection'
    """
    parts = Path(path).relative_to(HOME).with_suffix("").parts
    return ".".join(p for p in parts[-2:] if p != "__init__")


def rate(seconds=2.0):
    """Return operations per CPU second of products of matrices."""
    n, k, m = SHAPE
    a, b = torch.randn(n, k), torch.randn(k, m)
    count, started = 0, time.process_time()
    while time.process_time() - started < seconds:
        for _ in range(50):
            torch.mm(a, b)
        count += 50
    return 2 * n * k * m * count / (time.process_time() - started)


def measured(work, again):
    """Do work twice; return operations, CPU seconds and where they were spent.

    Args:
        work: what is done.
        again: called between both.
    """
    with Counted() as counted:
        work()
    again()
    with sampled() as found:
        started = time.process_time()
        work()
        spent = time.process_time() - started
    return counted.operations, spent, found


def shares(found):
    """Return in words where computing was found."""
    looks = max(sum(found.values()), 1)
    named = [(m, n / looks) for m, n in found.most_common(NAMED) if n / looks >= LEAST]
    return ", ".join(f"`{module}` {share:.0%}" for module, share in named)


def bench_of(run, dataset, model, fold, folder):
    """Return the workbench of a block, whose models are copied from a run, and its cells."""
    store, plan = open_run(run)
    blocks = [b for b in plan.blocks if (b.dataset, b.model, b.fold) == (dataset, model, fold)]
    if not blocks:
        raise SystemExit(f"{run} has no block {dataset}/{fold}/{model}")
    bench = Workbench(plan.suite, blocks[0], Store(folder))
    for stage in stages_of(bench):
        where = model_folder(stage), bench.key(stage)
        if not store.has(*where):
            raise SystemExit(f"{run} has no {stage} of {blocks[0].label}; finish it first")
        shutil.copytree(store.folder(*where), bench.store.folder(*where))
    return bench


def stages_of(bench):
    """Return the models that a block needs."""
    return [*model_stages(bench.suite), *(AUTOENCODER + key for key in bench.block.autoencoders)]


def trainings(bench):
    """Yield a name and what was measured for every model of a block."""
    for stage in stages_of(bench):

        def train(stage=stage):
            model, rows = bench.recipe(stage)
            fit_many([model], [rows])

        yield f"training: {model_folder(stage)}", measured(train, lambda: None)


def searches(bench):
    """Yield a name and what was measured for every line, and for scoring."""
    bench.prepare()
    scored = []
    for cell in bench.block.cells:

        def forget(cell=cell):
            shutil.rmtree(bench.store.folder("explain", cell.explain_key))

        try:
            told = measured(lambda c=cell: bench.explain(c), forget)
        except (UnsupportedError, MissingInputError):
            continue
        scored.append(cell)
        yield f"`{cell.method.label}`", told
    for name, cell in zip(("references and scoring", "scoring"), scored, strict=False):

        def anew(cell=cell, fresh=name != "scoring"):
            shutil.rmtree(bench.store.folder("score", cell.score_key))
            if fresh:
                kept_references._last.clear()
                bench._made.pop("judge", None)

        yield f"{name} of a line", measured(lambda c=cell: bench.score(c), anew)


def table(lines, products):
    """Return the table of what was measured, by seconds within models, lines and scores."""
    out = ["| stage or line | CPU s | floor, s | gap | where |", "|---|---|---|---|---|"]
    for name, (operations, spent, found) in lines:
        floor = operations / products
        gap = f"{spent / floor:,.1f}" if floor > 0.0005 * spent else ""
        out.append(f"| {name} | {spent:.2f} | {floor:.2g} | {gap} | {shares(found)} |")
    return "\n".join(out)


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("run")
    asked.add_argument("--dataset", default="heloc")
    asked.add_argument("--model", default="mlp")
    asked.add_argument("--fold", type=int, default=0)
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    torch.set_num_threads(1)
    products = rate()
    with tempfile.TemporaryDirectory() as folder:
        bench = bench_of(given.run, given.dataset, given.model, given.fold, Path(folder) / "run")
        models = list(trainings(bench))
        found = list(searches(bench))
    lines = [f for f in found if f[0].startswith("`")]
    lines.sort(key=lambda line: -line[1][1])
    rest = [f for f in found if not f[0].startswith("`")]
    made = table([*models, *lines, *rest], products)
    about = f"Block `{given.dataset}/{given.fold}/{given.model}` of suite `{bench.suite.name}`, "
    about += f"products at {products / 1e9:.0f} GFLOP/s:"
    print(made)
    if given.write:
        put_between(PAGE, f"floors on {given.dataset}", f"{about}\n\n{made}")


if __name__ == "__main__":
    main()
