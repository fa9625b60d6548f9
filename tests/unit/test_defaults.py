"""Defaults of public functions and metrics: whoever changes one changes stored results."""

import importlib
import inspect
import pkgutil

from cel.metrics import METRICS

# Numbers and truth values only. A method whose answers change with one gets a new version.
DEFAULTS = {
    "metrics.coach_plausibility": {"quantile": 0.5},
    "metrics.connectedness": {"k": 5, "quantile": 0.95},
    "metrics.cost_gap": {"min_rows": 10},
    "metrics.delta_validity": {"delta": 0.005},
    "metrics.discriminative_power": {"k": 10},
    "metrics.effectiveness_auc": {"budget": 1.0},
    "metrics.effectiveness_gap": {"min_rows": 10},
    "metrics.instability": {"sigma": 0.01, "draws": 3, "seed": 0},
    "metrics.invalidation_rate": {"sigma": 0.05, "draws": 100, "seed": 0},
    "metrics.isolation_forest": {"trees": 100, "seed": 42, "deduplicate": False},
    "metrics.lof": {"k": 20, "deduplicate": True},
    "metrics.lof_median": {"k": 20},
    "metrics.noise_robustness": {"sigma": 0.05, "draws": 100, "seed": 0},
    "metrics.prob_plausibility": {"quantile": 0.5},
    "metrics.retraining_bootstrap": {"n_models": 5, "seed": 0, "condition": False},
    "metrics.retraining_folds": {"n_models": 5, "seed": 0, "condition": False},
    "metrics.retraining_leave_out": {"n_models": 5, "seed": 0, "condition": False},
    "metrics.retraining_perturbed": {"n_models": 5, "seed": 0, "condition": False},
    "metrics.retraining_seeds": {"n_models": 5, "seed": 0, "condition": False},
    "metrics.retraining_shift": {"n_models": 3, "seed": 0, "condition": False},
    "metrics.stability": {"sigma": 0.05, "draws": 100, "seed": 0},
    "metrics.ynn": {"k": 5},
    "search.beam.few_changes": {"onwards": False},
    "search.boundary.bisect_to_boundary": {"steps": 20},
    "search.boundary.narrow_to_boundary": {"parts": 8, "rounds": 3},
    "search.branch.branch_and_bound": {"width": 16},
    "search.budget.Budget": {"strict": False},
    "search.coordinate.coordinate_search": {
        "starts": 6, "steps": 12, "polish": 4, "second_try": True,
    },
    "search.coordinate.lower": {"steps": 60},
    "search.fronts.DominatedVolume": {"points": 256, "power": 2.0},
    "search.gradient.gradient_search": {"check_every": 1, "stop_at_first": False},
    "search.leaf_branch.leaf_branch_and_bound": {"width": 32},
    "search.latent.latent_search": {"stop_at_first": False},
    "search.nearest_rows.nearest": {"k": 1, "p": 2.0, "chunk": 16777216},
    "search.pool.Pool.crowd": {"k": 5},
    "search.pool.Pool.nearest": {"k": 1},
    "search.population.Patience": {"tolerance": 0.0},
    "search.relu_bounds.interval_bounds": {"delta": 0.0},
    "search.relu_bounds.linear_forms": {"blame": False},
    "search.shells.grow_shells": {
        "p": 2.0, "start": 0.0, "growth": 1.0, "chunk": 131072, "ahead": 1,
    },
    "search.shells.shell_points": {"p": 2.0},
    "search.steppers.Adam": {"lr": 0.01, "eps": 1e-08},
    "search.steppers.Fista": {"lr": 0.01, "steps": 1000},
    "search.streams.RowStreams": {"draw": 0},
    "search.variation.Variation": {"eta": 5.0},
    "search.variation.Variation.inside": {"surely": False},
    "search.weight_growth.search_weight": {"growth": 10.0, "largest": 1000000000.0},
    "solvers.admm.Solution": {"iterations": 0},
    "solvers.admm.solve_programs": {"tolerance": 1e-06, "max_iter": 3000, "close": 1e-13},
    "solvers.choices.cheapest_choices": {"count": 1, "nodes": 20000},
    "solvers.closed_forms.nearest_elastic": {"l1": 0.0, "theta": 0.0},
    "solvers.closed_forms.nearest_l1": {"scale": 1.0},
    "solvers.cuts.Cuts": {"memory": 8},
    "solvers.ellipsoid.Ellipsoids.project": {"close": 1e-13},
    "solvers.halfspaces.nearest_all": {"l1": 0.0, "square": 1.0, "theta": 0.0, "lean": False},
    "solvers.least_change.least_change_search": {"steps": 20},
    "solvers.linearised.Demands": {"aside": 0, "lean": False},
    "space.constraints.LinearRelation": {"bound": 0.0},
    "space.constraints.LinearRelation.of": {"bound": 0.0},
    "space.feature.Feature": {
        "lower": 0.0, "upper": 1.0, "anchor": 0.0, "mutable": True, "weight": 1.0,
        "protected": False, "hard": False,
    },
    "space.feature_space.FeatureSpace.continuous": {"lower": 0.0, "upper": 1.0},
    "space.target.Target.place": {"positions": False},
}  # fmt: skip


def numbers(function):
    """Return the defaults of a function that are numbers or truth values."""
    told = {k: p.default for k, p in inspect.signature(function).parameters.items()}
    return {k: v for k, v in told.items() if isinstance(v, int | float)}


def parts(name, thing):
    """Return the functions of a public name: itself, or the methods of a class."""
    if not inspect.isclass(thing):
        return {name: thing} if callable(thing) else {}
    own = {k: getattr(thing, k) for k in vars(thing) if not k.startswith("_")}
    methods = {f"{name}.{k}": f for k, f in own.items() if callable(f)}
    return {name: thing.__init__} | methods


def test_defaults_are_these():
    found = {f"metrics.{n}": numbers(METRICS.get(n).function) for n in METRICS.names()}
    for package in ("space", "search", "solvers"):
        place = importlib.import_module(f"cel.{package}").__path__
        for module in pkgutil.iter_modules(place):
            home = importlib.import_module(f"cel.{package}.{module.name}")
            for name in getattr(home, "__all__", ()):
                thing = getattr(home, name)
                if getattr(thing, "__module__", "") == home.__name__:
                    for label, function in parts(name, thing).items():
                        found[f"{package}.{module.name}.{label}"] = numbers(function)
    assert {k: found.get(k) for k in DEFAULTS} == DEFAULTS
