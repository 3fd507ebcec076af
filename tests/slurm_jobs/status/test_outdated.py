"""Which finished work is older than what it was made from."""

import pytest

from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.status.outdated import ages_of, outdated_slices
from tests.slurm_jobs.runs import intent


def newest(*numbers: int) -> dict[int, Intent]:
    """An intent a slice, with these numbers in the ledger."""
    return {i: intent(number, "s", None, slices=(i,)) for i, number in enumerate(numbers)}


def test_nothing_is_outdated_where_stages_were_submitted_in_order() -> None:
    assert outdated_slices({"p": "afterok"}, newest(5, 6), {"p": {0: 3, 1: 4}}) == set()


@pytest.mark.parametrize(
    ("kind", "outdated"),
    [("afterok", {0, 1}), ("afterany", {0, 1}), ("afternotok", {0, 1}), ("aftercorr", {1})],
)
def test_one_newer_slice_of_a_parent_outdates_what_waited_for_it(
    kind: str, outdated: set[int]
) -> None:
    assert outdated_slices({"p": kind}, newest(5, 6), {"p": {0: 3, 1: 9}}) == outdated


def test_a_stage_is_outdated_by_what_its_parents_come_after() -> None:
    """The one in between was never reached, and has its old number still."""
    grandparent = ages_of({}, newest(9), {}, 1)
    parent = ages_of({"g": "afterok"}, newest(2), {"g": grandparent}, 1)
    assert parent == {0: 9}
    assert outdated_slices({"p": "afterok"}, newest(3), {"p": parent}) == {0}


def test_a_slice_that_was_never_submitted_is_as_old_as_what_it_comes_after() -> None:
    assert ages_of({"p": "aftercorr"}, newest(7), {"p": {0: 3, 1: 4}}, 2) == {0: 7, 1: 4}


def test_a_parent_that_is_left_out_outdates_nothing() -> None:
    """So it is with a stage that is not needed."""
    assert outdated_slices({"p": "afterok"}, newest(5), {}) == set()
