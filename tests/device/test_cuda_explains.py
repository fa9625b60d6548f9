"""Methods on another device than the CPU: on a CUDA device, and on one that every machine has.

`cel.testing.elsewhere` computes on the CPU and refuses mixtures of devices, so that answers there
are the CPU's to the byte. A GPU rounds differently, and a descent of many steps makes more of
that: there the same rows are answered, at the same distance, but for a small part.
"""

import numpy as np
import pytest
import torch

from cel.cf_methods.variants import named
from cel.models import load_model
from cel.models.classifiers import MLPClassifier
from cel.models.generative import VAE, default_density
from cel.protocols import Need
from cel.testing.elsewhere import second_device
from cel.testing.problems import PROBLEMS

CHEAP = {
    "ppcef": {"steps": 20, "rounds": 1, "starts": 2},
    "revise": {"steps": 30},
    "clue": {"steps": 20},
    "group_ppcef": {"steps": 10, "groups": 2, "grid": 16},
    "wachter": {"rounds": 2, "steps": 20},
    "dice_gradient": {"max_iter": 30},
    "dice": {"total_CFs": 10},
    "rbr": {},
    "dice_closest": {"total_CFs": 10},
    "dice_genetic": {"total_CFs": 4},
    "wachter_exact": {},
    "cchvae": {"samples": 50},
    "cchvae_screened": {"samples": 50},
    "cegp": {"c_steps": 1, "max_iter": 20},
    "cearm": {},
    "cem": {"c_steps": 2, "max_iter": 20},
    "elastic_net": {"c_steps": 2, "max_iter": 20},
    "cadex": {},
    "roar": {"steps": 20},
    "probe": {},
    "growing_spheres": {"samples": 100},
    "moc": {"mu": 10, "generations": 5},
    "geco": {},
    "globe_ce": {"n_sample": 50, "grid": 16},
    "glance": {"initial_clusters": 5},
}
FULL = ("ppcef_tangents", "artelt_scp", *CHEAP)  # the first two take minutes there
LONG = (
    "cearm", "group_ppcef", "probe", "revise", "ppcef", "wachter", "cegp",
    "cadex", "rbr", "roar",
)  # fmt: skip
"""Seconds on a device of Python's own; a part of them runs in a day's tests."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network, a density and an autoencoder of the mixed problem, in files."""
    folder, p = tmp_path_factory.mktemp("models"), PROBLEMS["mixed"]()
    y = p.model.predict(p.x_train)
    model = MLPClassifier(hidden=(16, 16), epochs=30).fit(p.x_train, y, space=p.space)
    seen = model.predict_proba(p.x_train).argmax(1)
    model.save(folder / "model")
    default_density(p.space, epochs=5).fit(p.x_train, seen, space=p.space).save(folder / "density")
    VAE(latent=3, hidden=(16,), epochs=20).fit(p.x_train, space=p.space).save(folder / "vae")
    return folder, p, y


def explained(files, label, device, rows, **changes):
    folder, p, y = files
    cls, params = named(label)
    extra = {"space": p.space}
    if Need.DENSITY in cls.needs:
        extra["gen_model"] = load_model(folder / "density", device=device)
    if cls.autoencoder_settings:
        extra["autoencoder"] = load_model(folder / "vae", device=device)
    method = cls(load_model(folder / "model", device=device), **(extra | params | changes))
    model = method.fit(p.x_train, y).model
    pool = p.x_train[model.predict_proba(p.x_train).argmax(1) == 0]
    return method.explain(pool[:rows], 1)


def _marked(labels):
    return [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in labels]


@pytest.mark.parametrize("label", _marked(CHEAP))
def test_no_tensor_is_left_behind(files, label):
    here = explained(files, label, "cpu", 4, **CHEAP[label])
    with second_device() as there:
        moved = explained(files, label, there, 4, **CHEAP[label])
    assert np.array_equal(here.x_cfs, moved.x_cfs, equal_nan=True)
    assert list(here.status) == list(moved.status)


def test_a_forgotten_device_is_refused():
    with second_device() as there:
        x = torch.ones(3, 2, device=there)
        kept = x.cpu()
        with pytest.raises(RuntimeError, match="one device"):
            x + torch.zeros(3, 2)
        with pytest.raises(RuntimeError, match="one device"):
            kept[torch.arange(2, device=there)]
        with pytest.raises((TypeError, RuntimeError)):
            x.numpy()
        assert x[torch.tensor([0, 2])].cpu().tolist() == kept[[0, 2]].tolist()
        x[0] = 5
        assert (x + torch.tensor(1.0)).cpu().tolist() == [[6, 6], [2, 2], [2, 2]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("label", FULL)
def test_cuda_explains_as_the_cpu_does(files, label):
    changes = CHEAP["group_ppcef"] if label == "group_ppcef" else {}
    here, there = (explained(files, label, d, 100, **changes) for d in ("cpu", "cuda"))
    a, b = here.found, there.found
    assert abs(int(a.sum()) - int(b.sum())) <= 2
    both = a & b
    assert both.sum() >= 0.95 * a.sum()
    far = [np.linalg.norm((r.x_cfs - r.x_origs)[both], axis=1).mean() for r in (here, there)]
    assert far[1] == pytest.approx(far[0], rel=0.02)
