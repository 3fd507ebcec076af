"""Times of a device whose queue is a stand-in: it works only when a test lets it.

The order of CUDA's events in a stream is all that is assumed of them. Of `CudaClock`, which runs on
a GPU alone, only what it makes of torch's answers is tested, with an event that is a stand-in.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.timing.device_clock import CudaClock
from pipeline.timing.recorder import StepRecorder
from slurm_jobs.formats.timings.step_records import DEVICE_FIELDS, steps_path
from tests.pipeline.clock import stop_the_clock
from tests.pipeline.timing.test_recorder import COUNTS, OUTCOME, full_disk, record, steps_of


class Device:
    """A queue of work and marks. Its clock moves when it works, and waits when it is idle."""

    def __init__(self) -> None:
        self.queue, self.now_s, self.num_lent = [], 0.0, 0

    def mark(self):
        mark = SimpleNamespace(passed_s=None)
        self.queue.append(mark)
        self.num_lent += 1
        return mark

    def work(self, seconds):
        self.queue.append(seconds)

    def run(self, *, until=None):
        """Do what is queued; `until`: a moment that the device reaches idle."""
        for entry in self.queue:
            if isinstance(entry, float):
                self.now_s += entry
            else:
                entry.passed_s = self.now_s
        self.queue.clear()
        self.now_s = max(self.now_s, until or 0.0)

    def has_passed(self, mark):
        return mark.passed_s is not None

    def wait(self, _mark):
        self.run()

    def seconds_between(self, first, last):
        return last.passed_s - first.passed_s

    def give_back(self, marks):
        self.num_lent -= len(list(marks))


def make_step(recorder, device, step):
    """The host queues all of it at once, and waits once, as the loop does."""
    recorder.start_step(step)
    recorder.lap("data_wait_s")
    for _ in range(2):
        device.work(0.1)
        recorder.lap("host_to_device_s")
        device.work(1.0)
        recorder.lap("forward_s")
        device.work(2.0)
        recorder.lap("backward_s")
    device.run()  # what the loop's one synchronisation does
    recorder.lap("optimizer_s")
    device.work(0.5)
    recorder.lap("optimizer_s")
    recorder.end_step(COUNTS, OUTCOME)


@pytest.fixture
def device():
    return Device()


def test_device_times_are_those_of_the_work_between_laps(tmp_path, device):
    with StepRecorder(tmp_path, 0, {}, device_clock=device) as recorder:
        for step in range(3):
            make_step(recorder, device, step)
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1, 2]
    assert steps["device_host_to_device_s"] == pytest.approx([0.2] * 3)
    assert steps["device_forward_s"] == pytest.approx([2.0] * 3)
    assert steps["device_backward_s"] == pytest.approx([4.0] * 3)
    assert steps["device_optimizer_s"] == pytest.approx([0.5] * 3)
    assert steps["device_step_s"] == pytest.approx([6.7] * 3)
    assert device.num_lent == 0


def test_an_idle_device_shows_its_data_wait_and_a_busy_one_shows_none(tmp_path, device):
    with StepRecorder(tmp_path, 0, {}, device_clock=device) as recorder:
        recorder.start_step(0)
        device.run(until=3.0)  # it has nothing to do while the host waits for data
        recorder.lap("data_wait_s")
        device.work(1.0)
        recorder.lap("forward_s")
        recorder.end_step(COUNTS, OUTCOME)
        recorder.start_step(1)
        recorder.lap("data_wait_s")  # the host waited as long, but the device was still at work
        recorder.end_step(COUNTS, OUTCOME)
    assert steps_of(tmp_path)["device_data_wait_s"].tolist() == [3.0, 0.0]


def test_a_step_is_read_only_once_the_device_is_done_and_without_waiting(
    tmp_path, device, monkeypatch
):
    recorder = StepRecorder(tmp_path, 0, {}, device_clock=device)
    with monkeypatch.context() as patch:
        patch.setattr(device, "wait", None)  # calling it would fail
        record(recorder, 3)
        recorder.flush()
        assert len(steps_of(tmp_path)) == 0
        device.run()
        record(recorder, 1, first=3)
        recorder.flush()
        assert steps_of(tmp_path)["step"].tolist() == [0, 1, 2]
    recorder.close()
    assert steps_of(tmp_path)["step"].tolist() == [0, 1, 2, 3]
    assert not np.isnan(steps_of(tmp_path)["device_step_s"]).any()


def test_before_a_checkpoint_all_steps_are_on_disk_and_device_times_follow(tmp_path, device):
    recorder = StepRecorder(tmp_path, 0, {}, device_clock=device)
    make_step(recorder, device, 0)
    recorder.start_step(1)
    device.work(1.0)
    recorder.lap("forward_s")
    device.run()
    recorder.write_so_far(COUNTS, OUTCOME)
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1]
    assert steps["device_step_s"][0] == pytest.approx(6.7)
    assert np.isnan(steps["device_step_s"][1])
    recorder.lap("checkpoint_s")
    recorder.end_step(COUNTS, OUTCOME)  # the device has not come to its last mark
    make_step(recorder, device, 2)
    recorder.start_step(3)
    device.run()
    recorder.write_so_far(COUNTS, OUTCOME)
    recorder.end_step(COUNTS, OUTCOME)
    recorder.close()
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["device_forward_s"].tolist()[:2] == pytest.approx([2.0, 1.0])
    assert not np.isnan(steps["device_step_s"]).any()


def test_a_full_disk_takes_no_step_that_a_checkpoint_has(tmp_path, device):
    recorder = StepRecorder(tmp_path, 0, {}, device_clock=device)
    recorder.start_step(0)
    recorder.write_so_far(COUNTS, OUTCOME)
    recorder.end_step(COUNTS, OUTCOME)
    record(recorder, 1, first=1)
    device.run()
    with full_disk(steps_path(tmp_path, 0), num_bytes_left=50), pytest.raises(OSError):
        record(recorder, 1, first=2)
    assert steps_of(tmp_path)["step"].tolist() == [0]
    recorder.close()
    assert steps_of(tmp_path)["step"].tolist() == [0, 1, 2]


def test_two_checkpoints_in_a_row_lose_no_step_though_the_device_is_behind(tmp_path, device):
    recorder = StepRecorder(tmp_path, 0, {}, device_clock=device)
    for step in range(3):
        recorder.start_step(step)
        recorder.write_so_far(COUNTS, OUTCOME)
        assert steps_of(tmp_path)["step"].tolist() == list(range(step + 1))
        recorder.end_step(COUNTS, OUTCOME)
    recorder.close()
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1, 2]
    assert np.isnan(steps["device_step_s"]).tolist() == [True, True, False]


def test_records_of_a_failed_training_are_kept_without_asking_the_device(tmp_path, device):
    def fail(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def train():
        with StepRecorder(tmp_path, 0, {}, device_clock=device) as recorder:
            record(recorder, 2)
            device.has_passed = device.wait = device.seconds_between = fail
            raise ValueError("the loss")

    with pytest.raises(ValueError, match="the loss"):
        train()
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1]
    assert all(np.isnan(steps[name]).all() for name in DEVICE_FIELDS)


def test_host_times_are_the_same_with_a_device_as_without(tmp_path, device, monkeypatch):
    clock = stop_the_clock(monkeypatch)
    with StepRecorder(tmp_path, 0, {}, device_clock=device) as recorder:
        recorder.start_step(0)
        clock.advance(0.25)
        recorder.lap("data_wait_s")
        device.work(100.0)
        recorder.end_step(COUNTS, OUTCOME)
    (step,) = steps_of(tmp_path)
    assert (step["data_wait_s"], step["step_s"]) == (0.25, 0.25)
    assert step["device_step_s"] == 100.0


def test_events_are_used_again_and_their_milliseconds_are_seconds(monkeypatch):
    made = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing
            made.append(self)

        def record(self):
            self.at_ms = 1500.0 * len(made)

        def elapsed_time(self, other):
            return other.at_ms - self.at_ms

    monkeypatch.setattr("torch.cuda.Event", Event)
    clock = CudaClock()
    first, last = clock.mark(), clock.mark()
    assert clock.seconds_between(first, last) == 1.5
    clock.give_back([first, last])
    assert {clock.mark(), clock.mark()} == {first, last}
    assert len(made) == 2
