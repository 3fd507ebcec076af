"""Which finished work is older than what it was made from."""

from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.status import ages_of, outdated_slices


def newest(*numbers: int) -> dict[int, Intent]:
    """An intent a slice, with these numbers in the ledger."""
    return {
        index: Intent(
            number=number,
            token=f"t{number}",
            stage="s",
            slices=(index,),
            is_array=True,
            fingerprint="f",
            job_name="n",
            time_unix_s=0.0,
        )
        for index, number in enumerate(numbers)
    }


def test_nothing_is_outdated_where_stages_were_submitted_in_order() -> None:
    assert outdated_slices({"p": "afterok"}, newest(5, 6), {"p": {0: 3, 1: 4}}) == set()


def test_all_slices_are_outdated_by_one_newer_slice_of_a_parent() -> None:
    for kind in ("afterok", "afterany", "afternotok"):
        assert outdated_slices({"p": kind}, newest(5, 6), {"p": {0: 3, 1: 9}}) == {0, 1}


def test_aftercorr_is_outdated_by_its_like_alone() -> None:
    assert outdated_slices({"p": "aftercorr"}, newest(5, 6), {"p": {0: 3, 1: 9}}) == {1}


def test_a_stage_is_outdated_by_what_its_parents_come_after() -> None:
    """The one in between was never reached, and has its old number still."""
    grandparent = ages_of({}, newest(9), {}, 1)
    parent = ages_of({"g": "afterok"}, newest(2), {"g": grandparent}, 1)
    assert parent == {0: 9}
    assert outdated_slices({"p": "afterok"}, newest(3), {"p": parent}) == {0}


def test_a_slice_that_was_never_submitted_has_the_age_of_what_it_comes_after() -> None:
    assert ages_of({"p": "aftercorr"}, newest(7), {"p": {0: 3, 1: 4}}, 2) == {0: 7, 1: 4}


def test_a_parent_that_is_left_out_outdates_nothing() -> None:
    """So it is with a stage that is not needed."""
    assert outdated_slices({"p": "afterok"}, newest(5), {}) == set()
