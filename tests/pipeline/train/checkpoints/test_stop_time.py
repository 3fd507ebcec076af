"""How long a stop takes, by the saves and steps so far."""

import pytest

from pipeline.train.checkpoints.stop_time import StopTime


def test_stopping_takes_the_longest_save_and_the_longest_step_so_far():
    stop_time = StopTime(start_step=10, begun_s=100.0)
    stop_time.after_stall(20, 105.0, 107.0)
    assert stop_time.after_save(2.0) == pytest.approx(0.5 + 2.0)
    stop_time.after_stall(22, 109.0, 110.0)
    assert stop_time.after_save(1.0) == pytest.approx(1.0 + 2.0)
    stop_time.after_stall(32, 111.0, 116.0)
    assert stop_time.after_save(5.0) == pytest.approx(1.0 + 5.0)


def test_a_save_right_at_the_start_has_no_step_to_measure():
    stop_time = StopTime(start_step=0, begun_s=0.0)
    stop_time.after_stall(0, 0.0, 3.0)
    assert stop_time.after_save(3.0) == pytest.approx(3.0)


def test_a_stop_waits_for_the_background_save_before_it_saves():
    stop_time = StopTime(start_step=0, begun_s=0.0)
    stop_time.after_stall(10, 20.0, 21.0)
    assert stop_time.after_save(31.0, background_s=30.0) == pytest.approx(2.0 + 30.0 + 31.0)
    assert stop_time.after_save(8.0) == pytest.approx(2.0 + 30.0 + 31.0)
