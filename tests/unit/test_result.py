"""Results: aligned, in original units, and unharmed by files."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cel.cf_methods import METHODS
from cel.datasets import load_dataset
from cel.errors import DataError, StoreError
from cel.models.classifiers import LogisticRegression
from cel.result import ExplanationResult


@pytest.fixture(scope="module")
def split():
    return load_dataset("mixed").split()


@pytest.fixture(scope="module")
def result(split):
    model = LogisticRegression().fit(split.loader("train"))
    method = METHODS.get("dice")(model, total_CFs=4).fit(split)
    return method.explain(split.test.frame.head(40), 1)


def test_frames_are_in_original_units(result, split):
    frame = result.to_frame()
    raw = split.test.frame
    assert list(frame.columns) == list(raw.columns)
    assert list(frame.index) == list(result.source_ids[result.found])
    assert frame.dtypes.to_dict() == raw.dtypes.to_dict()
    for feature in split.raw_space:
        if feature.categories:
            assert set(frame[feature.name].unique()) <= set(feature.categories)
        elif feature.kind == "integer":
            assert (frame[feature.name] % 1 == 0).all()
    originals = result.originals().loc[raw.index[:40]]
    pd.testing.assert_frame_equal(originals, raw.head(40), rtol=1e-5, check_names=False)


def test_changes_rebuild_the_counterfactuals(result):
    rebuilt = result.originals().loc[result.to_frame().index].astype(object)
    for line in result.changes().itertuples(index=False):
        assert rebuilt.loc[line.row, line.feature] != line.to
        rebuilt.loc[line.row, line.feature] = line.to
    frame = result.to_frame()
    for name in frame.columns:
        got, want = rebuilt[name].tolist(), frame[name].tolist()
        if frame[name].dtype.kind == "f":
            np.testing.assert_allclose(np.array(got, float), np.array(want, float), rtol=1e-4)
        else:
            assert got == want


def test_sets_hold_several_verified_answers(result):
    frame = result.to_frame(sets=True)
    assert len(frame) > result.found.sum()
    assert frame["alternative"].max() <= 3


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_round_trip(result, tmp_path, kind):
    if kind == "parquet":
        result.to_parquet(tmp_path / "r.parquet")
        back = ExplanationResult.from_parquet(tmp_path / "r.parquet")
    else:
        back = ExplanationResult.from_json(result.to_json())
    for name in ("x_origs", "x_cfs", "y_origs", "y_cf_targets", "y_cfs", "x_sets", "source_ids"):
        np.testing.assert_array_equal(getattr(back, name), getattr(result, name), err_msg=name)
    assert list(back.status) == list(result.status)
    assert back.space == result.space
    assert back.target == result.target
    pd.testing.assert_frame_equal(back.to_frame(), result.to_frame())
    assert back.method == "dice"


def test_damaged_and_foreign_files_are_refused(result, tmp_path):
    path = tmp_path / "r.parquet"
    result.to_parquet(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(StoreError, match="damaged"):
        ExplanationResult.from_parquet(path)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(StoreError, match="not written by CEL"):
        ExplanationResult.from_parquet(tmp_path / "other.parquet")


def test_values_and_status_must_agree(result):
    from dataclasses import replace

    row = int(np.flatnonzero(result.found)[0])
    x = result.x_cfs.copy()
    x[row] = np.nan
    with pytest.raises(DataError, match=f"row {row}"):
        replace(result, x_cfs=x)
    with pytest.raises(DataError, match="rows"):
        replace(result, status=result.status[:-1])


def test_select_keeps_rows_aligned(result):
    part = result.select(result.found)
    assert part.found.all()
    np.testing.assert_array_equal(part.x_cfs, result.x_cfs[result.found])
    assert sum(result.counts().values()) == len(result)


def _proved(result):
    n, found = len(result), result.found
    proof = np.where(found, "optimal", "none").astype(object)
    proof[np.flatnonzero(found)[0]] = "within_gap"
    return replace(result, proof=proof, bound=np.where(found, np.arange(n) / 7, np.nan))


def test_proofs_survive_files_and_selection(result, tmp_path):
    proved = _proved(result)
    proved.to_parquet(tmp_path / "proved.parquet")
    read = ExplanationResult.from_parquet(tmp_path / "proved.parquet")
    again = ExplanationResult.from_json(proved.to_json())
    for copy in (read, again):
        assert copy.proof.tolist() == proved.proof.tolist()
        np.testing.assert_array_equal(copy.bound, proved.bound)
    some = proved.select(np.arange(3, 9))
    assert some.proof.tolist() == proved.proof[3:9].tolist()
    np.testing.assert_array_equal(some.bound, proved.bound[3:9])


def test_proofs_are_shown_and_counted(result):
    proved, found = _proved(result), int(result.found.sum())
    assert list(proved.to_frame(proofs=True).columns[-2:]) == ["proof", "bound"]
    assert "proof" not in result.to_frame()
    assert proved.proofs() == {
        "optimal": found - 1, "within_gap": 1, "heuristic": 0,
        "infeasible": int((result.status == "infeasible").sum()),
    }  # fmt: skip
    assert result.proofs()["heuristic"] == found
    assert f"{found - 1} optimal, 1 within_gap" in repr(proved)
    assert "optimal" not in repr(result)


def test_results_without_proofs_are_written_as_before(result, tmp_path):
    """Neither the columns nor the header of a file mention proofs that were not made."""
    result.to_parquet(tmp_path / "plain.parquet")
    assert not {"proof", "bound"} & set(pd.read_parquet(tmp_path / "plain.parquet").columns)
    assert b"proof" not in (tmp_path / "plain.parquet").read_bytes()
    assert "proof" not in result.to_json()


def test_a_proof_needs_a_found_row(result):
    lost = np.flatnonzero(~result.found)
    proof = np.full(len(result), "none", dtype=object)
    if len(lost):
        proof[lost[0]] = "optimal"
        with pytest.raises(DataError, match="proof 'optimal'"):
            replace(result, proof=proof)
    with pytest.raises(DataError, match="bound has 1 rows"):
        replace(result, bound=np.zeros(1))
