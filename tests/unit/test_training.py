"""The training loop: budgets, early stop, best weights, divergence, stacks."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cel.errors import ConfigError, TrainingError, UnsupportedError
from cel.models.classifiers import MLPClassifier
from cel.models.inputs import read_rows, validation_cut
from cel.models.layers import Linear, Network
from cel.models.regressors import MLPRegressor
from cel.models.training.loop import Job, Outcome, _Trainer, seeded, train
from cel.models.training.many import fit_many
from cel.models.training.row_pool import RowPool
from cel.models.training.schedule import FLOW_PRESETS, PREDICTOR_PRESETS, Schedule
from cel.models.training.stack import Stack


def squares(module, x, y):
    return (module(x) - y).square().mean(-1)


def line(n=64, seed=0, **schedule):
    """Return a job that learns y = 2 x - 1 with an affine module."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=rng)
    with seeded(seed):
        module = Linear(1, 1)
    settings = Schedule(
        **{"epochs": 200, "patience": 200, "batch_size": 16, "lr": 0.05} | schedule
    )
    rows = (x, 2 * x - 1)
    return Job(module=module, loss=squares, train=rows, valid=rows, schedule=settings, seed=seed)


def test_learns_and_keeps_history():
    job = line()
    outcome = train([job])[0]
    assert outcome.best_loss < 1e-6
    assert job.module.weight.item() == pytest.approx(2, abs=1e-2)
    assert [r["epoch"] for r in outcome.history] == list(range(1, 201))
    assert set(outcome.history[0]) == {"epoch", "train_loss", "valid_loss", "lr", "seconds"}
    assert outcome.reason == "epochs"


@pytest.mark.parametrize("passes", [1, 3])
def test_an_epoch_passes_over_the_rows_as_often_as_it_says(passes):
    """Weights after the same batches are the same, however many passes make an epoch."""
    seen = []

    def spied(module, x, y):
        if module.training:
            seen.append(len(x))
        return squares(module, x, y)

    def learned(epochs, passes):
        job = replace(line(n=40, epochs=epochs, passes=passes), loss=spied)
        return job, train([job])[0]

    job, outcome = learned(6 // passes, passes)
    assert seen == [16, 16, 8] * 6
    assert len(outcome.history) == 6 // passes
    other, _ = learned(6, 1)
    assert outcome.best_epoch == 6 // passes, "the last weights are kept, so both can be compared"
    assert torch.equal(job.module.weight, other.module.weight)
    assert Schedule(passes=passes, min_steps=90).for_rows(256).epochs == max(100, 90 // passes)
    assert Schedule(epochs=1, passes=passes, min_steps=90).for_rows(256).epochs == 90 // passes


def test_best_weights_are_restored():
    job = line(lr=0.7, epochs=30)  # a large step size makes the loss jump
    outcome = train([job])[0]
    losses = [r["valid_loss"] for r in outcome.history]
    assert outcome.best_epoch == int(np.argmin(losses)) + 1
    now = squares(job.module, *job.valid).mean().item()
    assert now == pytest.approx(min(losses), rel=1e-4)


def test_patience_counts_relative_improvements():
    outcome = Outcome()
    for epoch, loss in enumerate([1.0, 0.99995, 0.99994, 0.5], start=1):
        outcome.add({"epoch": epoch, "train_loss": 0.0, "valid_loss": loss}, 1e-3)
        if epoch == 3:
            assert outcome.waited == 2  # small gains are kept as best weights, but do not count
            assert outcome.best_epoch == 3
    assert outcome.waited == 0
    job = line(patience=3, min_delta=0.9, epochs=100)
    assert train([job])[0].reason == "patience"


@pytest.mark.parametrize("patience", [1, 3, 7])
def test_patience_is_the_number_of_epochs_after_the_last_improvement(patience):
    """A flat loss improves in the first epoch only, so training ends `patience` epochs later."""
    job = line(patience=patience, epochs=50)
    flat = Job(
        module=job.module, loss=lambda module, x, y: 0 * squares(module, x, y) + 1,
        train=job.train, valid=job.valid, schedule=job.schedule,
    )  # fmt: skip
    outcome = train([flat])[0]
    assert outcome.reason == "patience"
    assert len(outcome.history) == 1 + patience


def test_negative_losses_improve_downwards():
    outcome = Outcome()
    for epoch, loss in enumerate([-1.0, -1.00001, -2.0], start=1):
        outcome.add({"epoch": epoch, "train_loss": 0.0, "valid_loss": loss}, 1e-3)
    assert outcome.reference_epoch == 3


def test_time_limit_ends_training():
    start = time.perf_counter()
    outcome = train([line(epochs=1_000_000, patience=1_000_000, time_limit=0.2)])[0]
    assert outcome.reason == "time"
    assert time.perf_counter() - start < 5
    assert outcome.history


def test_divergence_keeps_the_best_weights():
    X = np.random.default_rng(0).random((60, 2))
    model = MLPRegressor(hidden=(4,), epochs=50, lr=1e38, patience=50)
    with pytest.raises(
        TrainingError, match=r"epoch \d+; the weights of epoch \d+ are kept"
    ) as info:
        model.fit(X, X[:, :1])
    assert "Lower lr=1e+38" in str(info.value)
    assert np.isfinite(model.predict(X)).all()


def test_a_diverging_model_does_not_hurt_its_stack():
    X = np.random.default_rng(0).random((60, 2)).astype(np.float32)
    models = [MLPRegressor(hidden=(4,), epochs=20, lr=0.05, random_state=s) for s in range(3)]
    rows = [read_rows(X, X[:, :1], None, None) for _ in models]
    rows[1] = read_rows(X, (X[:, :1] * 1e38).astype(np.float32), None, None)
    with pytest.raises(TrainingError, match="model 1"):
        fit_many(models, rows)
    assert models[0].history_.valid_loss.iloc[-1] < 0.5
    assert len(models[2].history_) == 20


def test_cosine_decay_ends_near_a_hundredth():
    outcome = train([line(decay="cosine", epochs=40, patience=40)])[0]
    rates = [r["lr"] for r in outcome.history]
    assert rates[0] == pytest.approx(0.05)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.05 * 0.02


@pytest.mark.parametrize("sizes", [(3.0, 0.1), (0.1, 0.2), (3.0, 7.0)])
def test_clip_shortens_the_long_gradients_and_no_other(sizes):
    """Gradients of one model count together; where none is long, all are as they were."""
    trainer = _Trainer([line(seed=s) for s in range(2)], torch.device("cpu"))
    for p in trainer.parameters:
        p.grad = torch.ones_like(p) * torch.tensor(sizes).view(-1, *(1,) * (p.dim() - 1))
    before = [p.grad.clone() for p in trainer.parameters]
    trainer._clip(1.0)
    length = torch.tensor(sizes) * 2**0.5  # a weight and a bias for each model
    for p, grad in zip(trainer.parameters, before, strict=True):
        want = grad / length.clamp(min=1.0).view(-1, *(1,) * (p.dim() - 1))
        torch.testing.assert_close(p.grad, want, rtol=1e-5, atol=0)
        assert torch.equal(p.grad[length <= 1], grad[length <= 1])
    trainer.parameters[0].grad[0] = torch.nan
    trainer._clip(100.0)
    assert trainer.parameters[1].grad[0].isnan().all(), "what has no length is no gradient"


def test_clip_bounds_each_model_of_a_stack():
    jobs = [line(seed=s, clip=1e-3, epochs=1, batch_size=64) for s in range(2)]
    before = [j.module.weight.item() for j in jobs]
    train(jobs)
    # Adam ignores the scale of gradients, so a clipped step is as long as any other.
    assert [j.module.weight.item() for j in jobs] != before


def test_global_random_state_is_left_alone():
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    train([line()])
    assert torch.equal(torch.rand(3), want)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"lr": -1.0}, {"batch_size": 0}, {"clip": 0.0}])
def test_schedules_are_checked(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Schedule(**wrong)


def test_unknown_decay():
    with pytest.raises(ConfigError, match="'linear'"):
        Schedule(decay="linear")


def test_paper_presets_are_those_of_the_paper():
    paper, flow = PREDICTOR_PRESETS["paper"], FLOW_PRESETS["paper"]
    assert (paper.batch_size, paper.lr, paper.epochs, paper.patience) == (128, 1e-3, 5000, 300)
    assert (flow.batch_size, flow.lr, flow.epochs, flow.patience) == (1024, 3e-3, 2000, 100)


def test_stack_equals_its_models_exactly():
    with seeded(0):
        modules = [Network(3, (5,), 2) for _ in range(4)]
    x = torch.rand(4, 7, 3)
    stack = Stack(modules)
    want = torch.stack([m(x[i]) for i, m in enumerate(modules)])
    assert torch.allclose(stack.module(x), want, atol=1e-6)


def test_modules_without_a_promise_are_vectorised():
    with seeded(0):
        modules = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
    x = torch.rand(3, 6, 3)
    want = torch.stack([m(x[i]) for i, m in enumerate(modules)])
    assert torch.allclose(Stack(modules).module(x), want, atol=1e-6)


def test_stacks_want_one_shape():
    with pytest.raises(UnsupportedError, match="one class and shape"):
        Stack([Linear(2, 1), Linear(3, 1)])


def test_a_stack_without_dropout_trains_each_model_as_if_alone():
    together, alone = (
        [line(seed=s, epochs=5) for s in range(3)],
        [line(seed=s, epochs=5) for s in range(3)],
    )
    train(together)
    for job in alone:
        train([job])
    for a, b in zip(together, alone, strict=True):
        assert torch.allclose(a.module.weight, b.module.weight, atol=1e-6)
        assert torch.allclose(a.module.bias, b.module.bias, atol=1e-6)


def test_models_of_a_stack_stop_on_their_own():
    jobs = [line(seed=s, patience=3, epochs=60) for s in range(3)]
    flat = jobs[1]
    stuck = Job(
        module=flat.module,
        loss=flat.loss,
        train=flat.train,
        seed=flat.seed,
        schedule=flat.schedule,
        valid=(flat.valid[0], torch.full_like(flat.valid[1], 1e4)),
    )
    outcomes = train([jobs[0], stuck, jobs[2]])
    assert outcomes[1].reason in ("patience", "epochs")
    alone = train([line(seed=2, patience=3, epochs=60)])[0]
    assert outcomes[2].best_epoch == alone.best_epoch
    assert outcomes[2].best_loss == pytest.approx(alone.best_loss, rel=1e-3, abs=1e-9)


def test_pool_shares_equal_tables_and_pads_short_ones():
    x, y = torch.arange(10.0)[:, None], torch.arange(10)
    pool = RowPool([(x, y), (x, y), (x[:8], y[:8])], stacked=True)
    assert len(pool.tensors[0]) == 18  # the slice has other rows than the whole
    index = pool.ordered([0, 1, 2])
    assert index.shape == (3, 10)
    batch = pool.batch(index)
    assert batch[0].shape == (3, 10, 1)
    assert pool.weight([0, 1, 2], slice(0, 8)) is None
    assert pool.weight([0, 1, 2], slice(8, 16)).tolist() == [[1, 1], [1, 1], [0, 0]]


def test_padding_does_not_change_what_is_learned():
    long, short = line(n=64, epochs=4), line(n=61, seed=1, epochs=4)
    outcomes = train([long, short])
    alone = line(n=61, seed=1, epochs=4)
    assert train([alone])[0].best_loss == pytest.approx(outcomes[1].best_loss, rel=1e-4)
    assert torch.allclose(alone.module.weight, short.module.weight, atol=1e-6)


def test_fit_many_groups_what_fits_together():
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 3)), rng.integers(0, 2, 80)
    models = [
        MLPClassifier(hidden=(4,), epochs=2),
        MLPClassifier(hidden=(5,), epochs=2),
        MLPClassifier(hidden=(4,), epochs=2, random_state=1),
    ]
    assert fit_many(models, [(X, y)] * 3) == models
    assert [m.history_.shape[0] for m in models] == [2, 2, 2]
    with pytest.raises(ConfigError, match="3 estimators but 1"):
        fit_many(models, [(X, y)])
    with pytest.raises(ConfigError, match="twice"):
        fit_many([models[0], models[0]], [(X, y)] * 2)


def test_validation_cut_is_stratified_and_seeded():
    labels = np.repeat([0, 1], [180, 20])
    fit, held = validation_cut(200, labels, 0)
    assert len(held) == 30
    assert labels[held.numpy()].sum() == 3
    assert sorted([*fit.tolist(), *held.tolist()]) == list(range(200))
    assert torch.equal(held, validation_cut(200, labels, 0)[1])
    assert not torch.equal(held, validation_cut(200, labels, 1)[1])
    few, same = validation_cut(4, None, 0)
    assert torch.equal(few, same)


def test_progress_changes_nothing():
    shown, quiet = line(epochs=3), line(epochs=3)
    train([shown], progress=True)
    train([quiet])
    assert torch.equal(shown.module.weight, quiet.module.weight)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_graphed_steps_learn_what_eager_steps_learn():
    def jobs(device):
        made = [line(n=640, seed=s, epochs=10, batch_size=64) for s in range(3)]
        return [
            Job(
                module=j.module.to(device),
                loss=j.loss,
                schedule=j.schedule,
                seed=j.seed,
                train=tuple(t.to(device) for t in j.train),
                valid=tuple(t.to(device) for t in j.valid),
            )
            for j in made
        ]

    for many in (1, 3):
        here, there = jobs("cpu")[:many], jobs("cuda")[:many]
        train(here)
        train(there)
        for a, b in zip(here, there, strict=True):
            assert torch.allclose(a.module.weight, b.module.weight.cpu(), atol=1e-4)
