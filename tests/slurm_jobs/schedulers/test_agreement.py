"""What counts where squeue, the controller and the accounting differ; time is a number here."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.schedulers.agreement import AGREE_S, AgreedState, Words, agree
from slurm_jobs.schedulers.protocol import Doubt

FRESH_S, OLD_S = 20.0, AGREE_S


def task(source: str, state: str | None) -> TaskAccounting | None:
    return None if state is None else TaskAccounting(job_id="7", state=state, source=source)


def found(
    queued: str | None,
    controlled: str | None,
    accounted: str | None,
    *,
    age_s: float = FRESH_S,
    acts: bool = False,
) -> AgreedState:
    """`controlled` is a state, or `unknown`, `silent`, or None if it was not asked."""
    words = Words(
        age_s=age_s,
        queued=task("squeue", queued),
        accounted=task("sacct", accounted),
        controller={None: "not asked", "silent": "silent"}.get(controlled, "answered"),  # type: ignore[arg-type]
        controlled=None
        if controlled in {None, "silent", "unknown"}
        else task("scontrol", controlled),
    )
    return agree(words, acts=acts)


@pytest.mark.parametrize("age_s", [0.0, 10.0, 75.0, 300.0, AGREE_S, 10 * AGREE_S])
@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize(
    ("queued", "controlled", "accounted", "source", "state"),
    [
        # The controller knows the job: a cache that is older or a database that lags is overruled.
        (None, "PENDING", None, "scontrol", "PENDING"),
        (None, "RUNNING", "PENDING", "scontrol", "RUNNING"),
        ("RUNNING", "FAILED", None, "scontrol", "FAILED"),
        ("RUNNING", "FAILED", "RUNNING", "scontrol", "FAILED"),
        ("RUNNING", "FAILED", "OUT_OF_MEMORY", "sacct", "OUT_OF_MEMORY"),
        ("NODE_FAIL", "PENDING", "NODE_FAIL", "scontrol", "PENDING"),  # requeued since
        # It does not know the job: it has ended, and the one who has the end says how.
        ("RUNNING", "unknown", "TIMEOUT", "sacct", "TIMEOUT"),
        ("FAILED", "unknown", None, "squeue", "FAILED"),
        # It was not asked: squeue decides about what lives.
        ("RUNNING", None, "FAILED", "squeue", "RUNNING"),
        ("FAILED", None, "TIMEOUT", "sacct", "TIMEOUT"),
        ("FAILED", None, "RUNNING", "squeue", "FAILED"),
        (None, None, "TIMEOUT", "sacct", "TIMEOUT"),
    ],
)
def test_the_source_that_cannot_be_behind_counts_at_any_age(
    *,
    queued: str | None,
    controlled: str | None,
    accounted: str,
    source: str,
    state: str,
    age_s: float,
    acts: bool,
) -> None:
    agreement = found(queued, controlled, accounted, age_s=age_s, acts=acts)
    assert agreement.task is not None
    assert (agreement.task.source, agreement.task.state) == (source, state)
    assert (agreement.doubt, agreement.lags) == (None, None)


@pytest.mark.parametrize("accounted", [None, "RUNNING", "PENDING"])
@pytest.mark.parametrize("controlled", [None, "unknown"])
def test_an_old_job_that_neither_squeue_nor_the_controller_has_has_ended(
    controlled: str | None, accounted: str | None
) -> None:
    assert found(None, controlled, accounted, age_s=OLD_S) == AgreedState(lags=accounted)


@pytest.mark.parametrize(
    ("controlled", "accounted", "age_s", "acts", "doubt"),
    [
        # The accounting has a fresh job alive, and the controller has lost it.
        ("unknown", "RUNNING", FRESH_S, False, "controller forgot"),
        ("unknown", "PENDING", FRESH_S, True, "controller forgot"),
        ("unknown", "RUNNING", OLD_S - 1, True, "controller forgot"),
        ("unknown", "RUNNING", OLD_S, True, None),
        # It ended, and a controller that forgets quickly has forgotten it.
        ("unknown", None, FRESH_S, True, None),
        ("unknown", "FAILED", FRESH_S, True, None),
        # The controller does not answer: nothing proves that a fresh job has ended.
        ("silent", None, FRESH_S, False, "controller silent"),
        ("silent", "RUNNING", FRESH_S, False, "controller silent"),
        ("silent", "RUNNING", OLD_S, False, None),
        ("silent", None, OLD_S, False, None),
        # Nor, to a command that replaces or cancels jobs, that an old one has.
        ("silent", None, OLD_S, True, "controller silent"),
        ("silent", "FAILED", OLD_S, True, "controller silent"),
    ],
)
def test_an_unlisted_job_is_open_where_nothing_proves_its_end(
    controlled: str, accounted: str | None, age_s: float, doubt: Doubt | None, *, acts: bool
) -> None:
    agreement = found(None, controlled, accounted, age_s=age_s, acts=acts)
    assert agreement.doubt == doubt
    if doubt is not None:
        assert agreement.task == task("sacct", accounted)  # RUNNING and PENDING beat silence


@pytest.mark.parametrize(
    ("age_s", "is_open"), [(FRESH_S, True), (-FRESH_S, True), (OLD_S, False), (-OLD_S, False)]
)
def test_a_job_from_far_in_the_future_is_not_fresh(age_s: float, *, is_open: bool) -> None:
    doubt = found(None, "unknown", "RUNNING", age_s=age_s, acts=True).doubt
    assert (doubt is not None) is is_open


def test_a_command_that_acts_does_not_take_squeues_word_alone() -> None:
    assert found("RUNNING", "silent", None, acts=True).doubt == "controller silent"
    assert found("FAILED", "silent", None, age_s=OLD_S, acts=True).doubt == "controller silent"
    assert found("RUNNING", "silent", None, age_s=OLD_S).doubt is None
