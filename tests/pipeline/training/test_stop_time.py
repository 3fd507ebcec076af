import pytest

from pipeline.training.stop_time import StopTime


def test_stopping_takes_the_longest_save_and_the_longest_step_so_far() -> None:
    stop_time = StopTime(start_step=10, begun_s=100.0)
    assert stop_time.after_save(20, 105.0, 107.0) == pytest.approx(0.5 + 2.0)
    assert stop_time.after_save(22, 109.0, 110.0) == pytest.approx(1.0 + 2.0)
    assert stop_time.after_save(32, 111.0, 116.0) == pytest.approx(1.0 + 5.0)


def test_a_save_right_at_the_start_has_no_step_to_measure() -> None:
    assert StopTime(start_step=0, begun_s=0.0).after_save(0, 0.0, 3.0) == pytest.approx(3.0)
