"""One contract for every registered model: predictors and densities alike."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone as sklearn_clone

from cel.errors import ConfigError, DataError, MissingInputError, NotFittedError, StoreError
from cel.models import MODELS, GenerativePytorchMixin, RegressionPytorchMixin, load_model
from cel.models.inputs import read_rows
from cel.models.training.many import fit_many
from cel.space import Feature, FeatureSpace

SPACE = FeatureSpace(
    (
        Feature(name="a"),
        Feature(name="b", columns=(1,)),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
    )
)
NAMES = MODELS.names()


def problem(cls, n=90, seed=0):
    """Return rows and targets of three classes, or two values, for a model class."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((n, 2)).astype(np.float32)
    blocks = np.eye(3, dtype=np.float32)[rng.integers(0, 3, n)]
    X = np.hstack([numbers, blocks])
    score = X @ np.array([2.0, -1.0, 0.3, -0.3, 0.0]) + 0.1 * rng.normal(size=n)
    if issubclass(cls, RegressionPytorchMixin):
        return X, np.stack([score, -3 * score], 1).astype(np.float32)
    return X, np.digitize(score, np.quantile(score, [0.33, 0.66])).astype(np.int64)


def make(name, **changes):
    cls = MODELS.get(name)
    quick = {} if cls.closed_form else {"epochs": 3}
    return cls(**{**cls._test_params, **quick, **changes})


def fitted(name, **changes):
    model = make(name, **changes)
    X, y = problem(type(model))
    return model.fit(X, y, space=SPACE), X, y


def context(model, y):
    blind = getattr(model, "context_kind_", None) == "none"
    return None if blind else torch.as_tensor(y)


def output(model, x, y):
    """Return what the model computes for tensor rows, (n, ...)."""
    if isinstance(model, GenerativePytorchMixin):
        return model.log_prob(x, context(model, y))
    return model.logits(x)


def numbers(model, X, y):
    return output(model, torch.as_tensor(X), y).detach().numpy()


@pytest.mark.parametrize("name", NAMES)
def test_clone_and_params(name):
    model = make(name, random_state=7)
    for twin in (model.clone(), sklearn_clone(model)):
        assert type(twin) is type(model)
        assert twin.get_params() == model.get_params()
        assert not hasattr(twin, "module_")
    assert model.set_params(random_state=8).random_state == 8
    with pytest.raises(ConfigError, match="random_state"):
        model.set_params(random_stat=1)
    assert vars(model).keys() == set(model.get_params()), "the constructor only stores"


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes_and_untouched_world(name):
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, X, y = fitted(name)
    if isinstance(first, GenerativePytorchMixin):
        first.sample(2, context(first, y[:2]))
    kept = X.copy(), y.copy()
    torch.manual_seed(123)  # a fit must not depend on it
    marked = torch.get_rng_state()
    second, _, _ = fitted(name)
    assert numbers(first, X, y).tobytes() == numbers(second, X, y).tobytes()
    assert np.array_equal(X, kept[0])
    assert np.array_equal(y, kept[1])
    assert torch.equal(marked, torch.get_rng_state())
    torch.set_rng_state(torch_before)
    assert np.array_equal(numpy_before, np.random.get_state()[1])


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_influence_each_other(name):
    model, X, y = fitted(name)
    whole = numbers(model, X, y)
    order = np.random.default_rng(1).permutation(len(X))
    assert np.allclose(numbers(model, X[order], y[order]), whole[order], atol=1e-4)
    one = numbers(model, X[:1], y[:1])
    assert one.shape == whole[:1].shape
    assert np.allclose(one, whole[:1], atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_use_leaves_the_module_as_found(name):
    model, X, y = fitted(name)
    calm = numbers(model, X, y)
    model.module_.train().requires_grad_(True)
    x = torch.as_tensor(X).requires_grad_()
    output(model, x, y).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert model.module_.training
    assert all(p.requires_grad and p.grad is None for p in model.module_.parameters())
    assert np.array_equal(numbers(model, X, y), calm), "dropout must be off"


@pytest.mark.parametrize("name", NAMES)
def test_float64_and_no_grad(name):
    model, X, y = fitted(name)
    single = numbers(model, X, y)
    with torch.no_grad():
        double = output(model, torch.as_tensor(X).double(), y)
    assert double.dtype == torch.float64
    assert np.allclose(double.numpy(), single, rtol=1e-3, atol=1e-3)
    with torch.inference_mode():
        again, _, _ = fitted(name)
    assert np.array_equal(numbers(again, X, y), single)


@pytest.mark.parametrize("name", NAMES)
def test_saved_models_come_back(name, tmp_path):
    model, X, y = fitted(name)
    path = model.save(tmp_path / "deep" / "model.safetensors")
    before = torch.get_rng_state()
    back = load_model(path)
    assert torch.equal(before, torch.get_rng_state())
    assert type(back) is type(model)
    assert back.get_params() == model.get_params()
    assert back.space_ == SPACE
    assert back.history_.equals(model.history_.astype(float))
    assert numbers(back, X, y).tobytes() == numbers(model, X, y).tobytes()
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no partial file is left"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError):
        load_model(path)


@pytest.mark.parametrize("name", NAMES)
def test_copies_are_equal(name):
    model, X, y = fitted(name)
    want = numbers(model, X, y)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(numbers(twin, X, y), want)


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_named(name):
    model = make(name)
    X, y = problem(type(model))
    with pytest.raises(NotFittedError, match="fit first"):
        output(model, torch.as_tensor(X), y)
    hole = X.copy()
    hole[3, 1] = np.nan
    with pytest.raises(DataError, match="row 3, column 1 is nan"):
        make(name).fit(hole, y, space=SPACE)
    with pytest.raises(DataError, match="not numbers"):
        make(name).fit(X.astype(str), y, space=SPACE)
    with pytest.raises(DataError, match="targets"):
        make(name).fit(X, y[:-1], space=SPACE)
    with pytest.raises(DataError):
        make(name).fit(X[:0], y[:0], space=SPACE)
    with pytest.raises(DataError, match="columns"):
        make(name).fit(X[:, :4], y, space=SPACE)
    model.fit(X, y, space=SPACE)
    with pytest.raises(DataError, match="5"):
        output(model, torch.zeros(2, 4), y[:2])
    with pytest.raises(ConfigError, match="unknown preset 'papre'"):
        make(name, preset="papre").fit(X, y, space=SPACE)
    with pytest.raises(ConfigError, match="unknown device"):
        make(name, device="tpux").fit(X, y, space=SPACE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_where_none_is(name):
    X, y = problem(MODELS.get(name))
    with pytest.raises(ConfigError, match="CUDA is not available"):
        make(name, device="cuda").fit(X, y, space=SPACE)


@pytest.mark.parametrize("name", NAMES)
def test_fits_from_loaders(name):
    X, y = problem(MODELS.get(name))
    rows = torch.utils.data.TensorDataset(torch.as_tensor(X), torch.as_tensor(y))
    loader = torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True)
    with pytest.raises(MissingInputError, match="space"):
        make(name).fit(loader)
    by_loader, by_rows = make(name).fit(loader, space=SPACE), make(name).fit(X, y, space=SPACE)
    assert np.array_equal(numbers(by_loader, X, y), numbers(by_rows, X, y))


@pytest.mark.parametrize("name", NAMES)
def test_stacks_learn_like_single_models(name):
    X, y = problem(MODELS.get(name))
    sizes = (90, 88, 90)  # folds differ by a row or two
    rows = [read_rows(X[:n], y[:n], SPACE, (X[:20], y[:20])) for n in sizes]
    many = fit_many([make(name, random_state=s) for s in range(3)], rows)
    alone = [make(name, random_state=s) for s in range(3)]
    for model, n in zip(alone, sizes, strict=True):
        model.fit(X[:n], y[:n], space=SPACE, valid=(X[:20], y[:20]))
    ours, theirs = (np.mean([m.history_.valid_loss.min() for m in g]) for g in (many, alone))
    # Noise and dropout come from one stream in a stack, so only the quality is the same.
    assert abs(ours - theirs) < 0.3 * max(1.0, abs(theirs))
    assert [len(m.history_) for m in many] == [len(m.history_) for m in alone]
    assert all(np.isfinite(numbers(m, X, y)).all() for m in many)


@pytest.mark.parametrize("name", NAMES)
def test_steps_leave_no_graph_to_the_collector(name):
    """A graph in a cycle keeps its memory, and its parameters cannot leave a stack."""
    X, y = problem(MODELS.get(name))
    X = np.hstack([X, X[:, [2]], 1 - X[:, [2]]])  # a second category: mixed rows have a fast path
    more = Feature(name="d", kind="categorical", columns=(5, 6), categories=("yes", "no"))
    rows = [read_rows(X, y, FeatureSpace((*SPACE, more)), (X[:20], y[:20]))] * 2
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        fit_many([make(name, random_state=s) for s in range(2)], rows)
        gc.collect()
        left = [o.grad_fn for o in gc.garbage if isinstance(o, torch.Tensor) and o.grad_fn]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_gives_what_the_cpu_gives(name):
    model, X, y = fitted(name)
    there = copy.deepcopy(model)
    there.module_ = there.module_.to("cuda")
    got = output(there, torch.as_tensor(X, device="cuda"), y)
    assert got.is_cuda
    assert np.allclose(got.cpu().numpy(), numbers(model, X, y), rtol=1e-3, atol=1e-3)
    trained = make(name, device="cuda").fit(X, y, space=SPACE)
    gap = trained.history_.valid_loss.min() - model.history_.valid_loss.min()
    assert abs(gap) < 0.5 * max(1.0, abs(model.history_.valid_loss.min()))
