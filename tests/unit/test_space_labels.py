"""Labels of classes, ranks that may be reached, relations on grids, and stored spaces."""

import numpy as np
import pytest
import torch

from cel.errors import ConfigError
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, LinearRelation, Target
from cel.space.serialize import space_from_dict, space_to_dict


def target(*classes):
    return Target(names=("y",), task=Task.CLASSIFICATION, classes=classes)


def test_labels_come_before_positions_and_words_are_not_numbers():
    assert [target("1", "0").place(v) for v in ("1", np.str_("0"))] == [0, 1]
    with pytest.raises(ConfigError, match=r"unknown target class 1; the classes are \['1', '0'\]"):
        target("1", "0").place(1)
    assert target(1, 2).place(2) == 1
    with pytest.raises(ConfigError, match="unknown target class '2'"):
        target(1, 2).place("2")
    assert target("a", "b").place(1, positions=True) == 1
    for value in (2, -1, True):
        with pytest.raises(ConfigError, match="unknown target class"):
            target("a", "b").place(value, positions=True)
    with pytest.raises(ConfigError, match="unknown target class 0"):
        target(1, 2).place(0, positions=True)  # labels are numbers
    assert target("a", "b").place(0, positions=True) == 0
    assert target(False, True).place(True) == 1


def test_values_are_scaled_by_their_range_unless_it_is_empty():
    given = Target(names=("a", "b"), task=Task.REGRESSION, lower=(1.0, 5.0), upper=(3.0, 5.0))
    assert given.encode([[2.0, 7.0]]).tolist() == [[0.5, 2.0]]
    assert given.decode([[0.5, 2.0]]).tolist() == [[2.0, 7.0]]
    one = Target(names=("a",), task=Task.REGRESSION, lower=(1.0,), upper=(3.0,))
    assert one.encode([2.0, 3.0]).tolist() == [[0.5], [1.0]]


RANKS = FeatureSpace(
    (
        Feature(name="r", kind="ordinal", columns=(0,), categories=tuple("abcde"), step=1.0,
                lower=0.0, upper=4.0, allowed=("a", "c", "e")),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("home", "asked", "seen"),
    [(1, 2.4, 2), (1, 3.4, 4), (1, 0.6, 1), (1, 0.4, 0), (0, 9.0, 4), (4, -3.0, 0), (3, 2.6, 3)],
)
def test_only_allowed_ranks_and_home_are_reached(home, asked, seen):
    region = RANKS.region(torch.tensor([[float(home)]]))
    assert region.snap(torch.tensor([[asked]])).item() == seen
    assert region.contains(torch.tensor([[float(seen)]])).item()


def test_ranks_above_or_below_the_row_may_be_closed():
    for direction, expected in (("up", [1, 2, 4]), ("down", [0, 1, 1])):
        space = RANKS.with_changes(r={"direction": direction})
        region = space.region(torch.tensor([[1.0]])).select(torch.tensor([0, 0, 0]))
        found = region.snap(torch.tensor([[0.0], [2.0], [4.0]]))
        assert found[:, 0].tolist() == expected
    forbidden = RANKS.region(torch.tensor([[1.0]])).violations(torch.tensor([[3.0]]))
    assert sum(int(v) for v in forbidden.values()) == 1


def test_broken_relations_are_repaired_to_the_safe_side_of_the_grid():
    space = FeatureSpace(
        (
            Feature(name="a", kind="integer", columns=(0,), lower=0.0, upper=9.0, step=1.0),
            Feature(name="b", kind="integer", columns=(1,), lower=0.0, upper=9.0, step=1.0),
            Feature(name="c", columns=(2,), lower=0.0, upper=9.0),
        ),
        (LinearRelation.of({"a": 1, "b": 1}, 7.0),),
    )
    home = torch.tensor([[1.0, 1.0, 1.0]] * 4)
    asked = torch.tensor([[5.0, 5.0, 2.0], [2.0, 3.0, 2.0], [6.0, 4.0, 2.0], [8.0, 9.0, 2.0]])
    found = space.region(home).snap(asked)
    assert (found[:, 0] + found[:, 1] <= 7.0).all()
    assert found[1].tolist() == [2.0, 3.0, 2.0]  # what is not broken stays
    assert (found == found.round()).all()
    assert found[0, :2].sum() >= 6  # and no further than needed
    for i in range(4):
        alone = space.region(home[:1]).snap(asked[i : i + 1])
        assert alone[0].tolist() == found[i].tolist()


def test_stored_spaces_name_only_what_is_not_a_default():
    space = FeatureSpace((
        Feature(name="x", columns=(0,)),
        Feature(name="c", kind="categorical", columns=(1, 2), categories=("u", "v"),
                mutable=False, upper=float("inf"), lower=float("-inf")),
    ))  # fmt: skip
    first, second = space_to_dict(space)["features"]
    assert first == {"name": "x", "columns": [0]}
    assert second == {
        "name": "c", "kind": "categorical", "columns": [1, 2], "categories": ["u", "v"],
        "mutable": False, "upper": "inf", "lower": "-inf",
    }  # fmt: skip
    assert space_from_dict(space_to_dict(space)) == space
