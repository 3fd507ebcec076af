"""Where the time of a thread's work goes."""

from __future__ import annotations

import math
import threading
import time

import pytest

from pipeline.timing import thread_clock
from pipeline.timing.thread_clock import ThreadClock, ThreadTimes, add_up


def times_of(work):
    """Of `work`, in a thread of its own beside others."""
    found = []

    def run():
        clock = ThreadClock()
        work()
        found.append(clock.read())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def compute_for(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def test_a_thread_that_computes_is_on_a_core_or_wants_one():
    found = times_of(lambda: compute_for(0.2))
    assert found.cpu_s == pytest.approx(0.2, abs=0.02)
    assert found.wall_s >= found.cpu_s + found.core_wait_s - 1e-3


def test_a_thread_that_is_blocked_computes_nothing():
    found = times_of(lambda: threading.Event().wait(0.2))  # nobody sets it
    assert found.wall_s > 0.15
    assert found.cpu_s < 0.05
    assert found.wall_s - found.cpu_s - found.core_wait_s > 0.1


def test_where_the_kernel_keeps_no_account_waits_for_a_core_are_not_known(monkeypatch, tmp_path):
    monkeypatch.setattr(thread_clock, "_SCHEDSTAT", tmp_path / "none")
    thread_clock._is_accounted.cache_clear()
    try:
        found = ThreadClock().read()
    finally:
        thread_clock._is_accounted.cache_clear()
    assert math.isnan(found.core_wait_s)
    assert found.cpu_s >= 0


def test_times_of_several_pieces_add_up_unless_one_is_unknown():
    known = ThreadTimes(wall_s=1.0, cpu_s=0.5, core_wait_s=0.25)
    assert add_up([known, known]) == ThreadTimes(wall_s=2.0, cpu_s=1.0, core_wait_s=0.5)
    assert math.isnan(add_up([known, ThreadTimes()]).wall_s)
