"""What a stage that keeps nothing does when it is asked to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipeline.stopping import AttemptProgress, answer_stop, describe_shortage
from slurm_jobs.base.processes import stop_requests

# One hour, of which two minutes are left; the first half of the rows took all the time so far.
SLOW = AttemptProgress(
    num_done=50, num_total=100, spent_s=3480, late_s=0, elapsed_s=3480, left_s=120
)
FITTING = replace(SLOW, num_done=99)


@pytest.mark.parametrize("must_end", [False, True])
def test_stop_far_from_the_time_limit_is_a_preemption_even_if_work_is_slow(must_end: bool) -> None:
    early = replace(SLOW, num_done=1, spent_s=600, elapsed_s=600, left_s=3000)
    assert answer_stop(early, must_end=must_end) == "stop"
    assert answer_stop(replace(SLOW, left_s=None), must_end=must_end) == "stop"


@pytest.mark.parametrize("must_end", [False, True])
def test_work_that_no_attempt_of_this_length_can_do_is_given_up(must_end: bool) -> None:
    assert answer_stop(SLOW, must_end=must_end) == "give_up"
    assert answer_stop(replace(SLOW, num_done=0), must_end=must_end) == "give_up"
    assert answer_stop(replace(SLOW, left_s=-5), must_end=must_end) == "give_up"


def test_work_that_fits_in_the_time_left_is_finished_unless_sigterm_came() -> None:
    assert answer_stop(FITTING, must_end=False) == "go_on"
    assert answer_stop(FITTING, must_end=True) == "stop"


def test_first_half_of_a_short_attempt_is_too_early_to_give_up() -> None:
    early = AttemptProgress(num_done=0, num_total=9, spent_s=0, late_s=0, elapsed_s=5, left_s=175)
    assert answer_stop(early, must_end=False) == "go_on"
    assert answer_stop(early, must_end=True) == "stop"
    assert answer_stop(replace(early, elapsed_s=95, left_s=85), must_end=False) == "give_up"


def test_late_retry_in_place_gets_the_whole_time_limit_in_another_attempt() -> None:
    late = AttemptProgress(
        num_done=50, num_total=100, spent_s=900, late_s=2580, elapsed_s=900, left_s=120
    )
    assert answer_stop(late, must_end=False) == "stop"
    assert answer_stop(replace(late, num_done=0), must_end=False) == "stop"
    assert answer_stop(replace(late, num_done=10), must_end=False) == "give_up"


def test_shortage_names_rows_seconds_and_the_remedy() -> None:
    words = describe_shortage(SLOW, unit="rows", remedy="raise resources.timeout_min")
    assert words == (
        "the time limit is too short: 50 of 100 rows done in 3480 s, 120 s are left, and the rest "
        "needs about 3480 s more, about 116 min in all; another attempt would get no further: "
        "raise resources.timeout_min"
    )
    none_done = describe_shortage(replace(SLOW, num_done=0, left_s=-1), unit="rows", remedy="x")
    assert "0 of 100 rows done in 3480 s, 0 s are left, and none is done" in none_done


@pytest.fixture
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stop_requests, "_signals_seen", set())
    numbers = (stop_requests.STOP_SIGNAL, stop_requests.RELAY_SIGNAL, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    stop_requests.install_stop_handler()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers")
def test_both_signals_ask_to_stop_and_only_sigterm_says_the_end_is_near() -> None:
    assert (stop_requests.stop_requested(), stop_requests.end_requested()) == (False, False)
    os.kill(os.getpid(), stop_requests.STOP_SIGNAL)  # as of a whole step
    assert not stop_requests.stop_requested()
    os.kill(os.getpid(), stop_requests.RELAY_SIGNAL)
    assert (stop_requests.stop_requested(), stop_requests.end_requested()) == (True, False)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (stop_requests.stop_requested(), stop_requests.end_requested()) == (True, True)
