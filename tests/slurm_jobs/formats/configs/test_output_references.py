"""References to output folders of stages, and their replacement."""

from typing import Any

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.output_references import (
    output_dir_variable,
    referenced_stage,
    substitute_references,
)

DIRS = {"a": "/run/data/a", "render-2": "/run/data/render-2"}


def test_only_output_dir_can_be_referred_to() -> None:
    assert referenced_stage("a-b_1.output_dir") == "a-b_1"
    assert referenced_stage("a.log_dir") is None
    assert referenced_stage("HOME") is None


def test_the_variable_of_a_folder_is_a_name_that_a_shell_can_hold() -> None:
    assert output_dir_variable("count") == "SLURM_JOBS_COUNT_OUTPUT_DIR"
    assert output_dir_variable("my-first_2") == "SLURM_JOBS_MY_FIRST_2_OUTPUT_DIR"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${a.output_dir}", "/run/data/a"),
        ("${a.output_dir}/x.jsonl", "/run/data/a/x.jsonl"),
        ("${a.output_dir}:${render-2.output_dir}", "/run/data/a:/run/data/render-2"),
        ({"k": ["${a.output_dir}", {"n": 1}]}, {"k": ["/run/data/a", {"n": 1}]}),
        (("x", ("${a.output_dir}",)), ["x", ["/run/data/a"]]),  # as JSON would have it
        ([1, 2.5, None, True, "plain"], [1, 2.5, None, True, "plain"]),
        ("$HOME ${HOME} $${x} ${a.outputs}", "$HOME ${HOME} $${x} ${a.outputs}"),
        ({"${a.output_dir}": 1}, {"${a.output_dir}": 1}),
    ],
)
def test_references_in_strings_become_the_stages_folders(value: Any, expected: Any) -> None:
    assert substitute_references(value, DIRS) == expected


def test_special_characters_of_a_folder_name_are_taken_literally() -> None:
    dirs = {"a": r"/run\1/${b.output_dir}"}
    assert substitute_references("${a.output_dir}/x", dirs) == r"/run\1/${b.output_dir}/x"


def test_the_given_value_stays_as_it_was() -> None:
    value = {"k": ["${a.output_dir}"]}
    substitute_references(value, DIRS)
    assert value == {"k": ["${a.output_dir}"]}


@pytest.mark.parametrize(("dirs", "known"), [(DIRS, "a, render-2"), ({}, "none")])
def test_a_stage_that_does_not_come_before_is_refused_with_those_that_do(
    dirs: dict[str, str], known: str
) -> None:
    with pytest.raises(StageConfigError, match=rf"later\.output_dir.*those: {known}\)"):
        substitute_references(["${later.output_dir}"], dirs)
