"""Every way in which a new user once failed has a test that keeps it from coming back."""

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent

FAILURES = {
    1: ("test_defects", "test_targets_are_labels_before_they_are_positions"),
    2: ("test_her_data", "test_every_cell_that_is_not_listed_is_the_owners"),
    3: ("test_her_data", "test_filling_a_gap_is_a_change_and_an_immutable_gap_stays"),
    4: ("test_answers", "test_one_is_never_worse_than_a_hundred"),
    5: ("test_her_data", "test_regression_in_the_units_of_the_owner"),
    6: ("test_her_data", "test_modules_get_the_columns_of_their_owner"),
    7: ("test_her_data", "test_functions_of_arrays"),
    8: ("test_constraints", "test_every_constraint_is_kept_by_every_answer"),
    9: ("test_her_data", "test_datasets_and_their_cards_reach_a_model"),
    10: ("test_her_data", "test_columns_that_travel_along_reach_the_model"),
    11: ("test_her_data", "test_one_bad_row_ends_as_error_and_the_others_are_answered"),
    12: ("test_answers", "test_one_change_where_one_is_enough"),
    13: ("test_time", "test_time_limits_hold"),
    14: ("test_her_data", "test_warnings_of_a_model_are_shown_once"),
    15: ("test_her_data", "test_a_range_is_a_range"),
    16: ("test_constraints", "test_weights_turn_the_search_elsewhere"),
}

REFUSED = ("test_mistakes", "test_what_is_refused_and_how")
CELLS = ("test_her_data", "test_every_cell_that_is_not_listed_is_the_owners")
SHAPES = ("test_mistakes", "test_rows_in_other_shapes")
EXTRA = (
    "test_her_data",
    "test_extra_columns_are_carried_and_the_outcome_may_stay_in_the_training_table",
)
ONE_BAD = ("test_her_data", "test_one_bad_row_ends_as_error_and_the_others_are_answered")
BEFORE = ("test_constraints", "test_what_cannot_be_kept_is_said_before_any_search")
NEWS = ("test_mistakes", "test_columns_without_news_and_many_labels")
SIZES = ("test_mistakes", "test_twenty_rows_and_a_hundred_thousand")

MISTAKES = {
    "wrong target name": REFUSED,
    "a position where classes are text": REFUSED,
    "1 for classes [1, 2] and [1, 2, 3]": FAILURES[1],
    "no target, two classes": (
        "test_mistakes", "test_without_a_target_two_classes_mean_the_other_one"),
    "no target, three classes": (
        "test_mistakes", "test_without_a_target_two_classes_mean_the_other_one"),
    "a list of allowed classes": ("test_targets", "test_any_of_several_classes"),
    "(label, p)": REFUSED,
    "{label: p}": ("test_targets", "test_a_probability_of_at_least"),
    "a bare probability": REFUSED,
    "target already met": ("test_mistakes", "test_rows_that_are_as_wanted_already"),
    "no training table": REFUSED,
    "training table by position": ("test_mistakes", "test_the_background_may_come_third"),
    "column missing": SHAPES,
    "column renamed": SHAPES,
    "columns in another order": (
        "test_mistakes", "test_columns_come_back_in_the_order_in_which_they_came"),
    "extra column in the rows": EXTRA,
    "training table holds the target": EXTRA,
    "both hold the target": EXTRA,
    "a gap in a row": ONE_BAD,
    "unseen category": ONE_BAD,
    "numbers as text": ONE_BAD,
    "no rows": SHAPES,
    "a Series": SHAPES,
    "a list of dicts": SHAPES,
    "an array of mixed types": SHAPES,
    "an array of numbers": ("test_her_data", "test_arrays_are_in_the_units_of_their_owner"),
    "an array for training": ("test_her_data", "test_arrays_are_in_the_units_of_their_owner"),
    "a model with labels only": ("test_model_kinds", "test_answers_hold_for_her_model"),
    "an object with predict only": (
        "test_mistakes", "test_a_model_that_fails_for_every_row_says_why"),
    "a function": ("test_her_data", "test_functions_of_arrays"),
    "a class instead of an instance": REFUSED,
    "a model that is not fitted": REFUSED,
    "the path of a model": REFUSED,
    "a model that prints": ("test_mistakes", "test_a_model_that_prints"),
    "a random model": ("test_mistakes", "test_a_model_that_throws_dice_is_told"),
    "a model that fails now and then": ONE_BAD,
    "a repeated index": ("test_mistakes", "test_indexes_that_repeat_are_kept"),
    "MultiIndex of rows": CELLS,
    "MultiIndex of columns": ("test_mistakes", "test_names_of_columns_that_are_no_text"),
    "numbers as names of columns": ("test_mistakes", "test_names_of_columns_that_are_no_text"),
    "dates with a zone as index": ("test_defects", "test_dates_as_index_can_be_written"),
    "a date column": FAILURES[10],
    "2,000 categories": NEWS,
    "very many training rows": SIZES,
    "bool": NEWS,
    "constant text": NEWS,
    "constant number": NEWS,
    "numbers and text in one column": ("test_mistakes", "test_numbers_and_text_in_one_column"),
    "Decimal": FAILURES[10],
    "Int64 with NA": ("test_defects", "test_an_immutable_gap_stays_a_gap"),
    "unused category levels": (
        "test_mistakes", "test_levels_that_no_background_row_has_are_not_reached"),
    "pyarrow dtypes": CELLS,
    "polars for training": SHAPES,
    "polars rows": SHAPES,
    "a class that is never predicted": (
        "test_targets", "test_a_class_that_is_never_predicted_is_said_at_once"),
    "everything immutable": (
        "test_mistakes", "test_everything_immutable_is_proved_to_be_impossible"),
    "one name instead of a list": ("test_mistakes", "test_one_name_is_one_column"),
    "unknown immutable column": REFUSED,
    "contradictory bounds": BEFORE,
    "contradictory relations": BEFORE,
    "relation on an unknown column": BEFORE,
    "relation on text": BEFORE,
    "unknown word for a direction": REFUSED,
    "negative time limit": REFUSED,
    "time limit as text": REFUSED,
    "no answers asked for": REFUSED,
    "half an answer": REFUSED,
    "one answer": FAILURES[4],
    "unknown method": REFUSED,
    "a search of DiCE as method": REFUSED,
    "wrong case of a setting": REFUSED,
    "no seed": REFUSED,
    "space= in the call": ("test_mistakes", "test_a_space_can_be_given_to_the_call"),
    "integers of 1e9": CELLS,
    "infinite training values": (
        "test_mistakes", "test_infinite_numbers_in_the_background_are_named"),
    "a row outside the range": FAILURES[15],
    "a fraction in an integer column": (
        "test_mistakes", "test_numbers_of_another_kind_than_training_are_kept"),
    "twenty training rows": SIZES,
    "a regression model": FAILURES[5],
    "a target in other units": FAILURES[5],
    "a regression without a target": (
        "test_her_data", "test_regression_asks_for_a_target_and_names_methods"),
    "a torch module with its own scaling": FAILURES[6],
    "a module over several categories": ("test_defects", "test_modules_over_several_categories"),
    "a model fitted on arrays": FAILURES[14],
}  # fmt: skip

KINDS = {
    "pipeline", "forest", "labels only", "hist", "xgboost", "lightgbm", "catboost", "function",
}  # fmt: skip


@cache
def names_in(module):
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("number", range(1, 17))
def test_each_failure_has_its_test(number):
    module, name = FAILURES[number]
    assert name in names_in(module)


def test_each_mistake_has_its_test():
    assert len(MISTAKES) == 84
    missing = {m: at for m, at in MISTAKES.items() if at[1] not in names_in(at[0])}
    assert not missing


def test_each_kind_of_model_is_asked():
    tree = ast.parse((HERE / "test_model_kinds.py").read_text(encoding="utf8"))
    made = next(
        n for n in tree.body
        if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "KINDS"
    )  # fmt: skip
    assert isinstance(made.value, ast.Dict)
    assert {k.value for k in made.value.keys if isinstance(k, ast.Constant)} == KINDS
    assert "test_a_torch_module_on_measurements" in names_in("test_model_kinds")
