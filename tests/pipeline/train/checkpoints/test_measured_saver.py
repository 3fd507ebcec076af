"""Saves as the loop asks for them: records, spans, and a stop that finds one under way."""

import pytest

from pipeline.timing import span_log
from pipeline.timing.span_log import SpanLog
from pipeline.train.checkpoints import checkpoint_folders, measured_saver
from pipeline.train.checkpoints import saver as saver_module
from pipeline.train.checkpoints.checkpoint_folders import damaged_files, list_checkpoints
from pipeline.train.checkpoints.checkpoint_record import read_info
from pipeline.train.checkpoints.measured_saver import MeasuredSaver
from pipeline.train.checkpoints.saver import Upload
from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.base.processes import stop_requests
from slurm_jobs.formats.timings.step_records import read_spans, spans_path
from tests.pipeline.clock import FakeClock
from tests.pipeline.train.checkpoints.folders import Gate

BESIDE = {"every_min": None, "every_steps": 3}


def test_a_stop_that_finds_a_save_under_way_leaves_both_checkpoints_whole(
    make_train_run, monkeypatch
):
    run = make_train_run(checkpoint=BESIDE, num_steps=30)
    save = MeasuredSaver.save
    with monkeypatch.context() as patch:
        gate = Gate(patch)
        patch.setattr(stop_requests, "_signals_seen", set())

        def save_and_ask(self, step, loss, *, must_end):
            if must_end:
                assert not self.has_ended_here()
                gate.opened.set()
            save(self, step, loss, must_end=must_end)
            if not must_end:
                stop_requests._signals_seen.add(stop_requests.STOP_SIGNAL)

        patch.setattr(MeasuredSaver, "save", save_and_ask)
        with pytest.raises(StageStoppedError, match="state after step 4 is saved"):
            run.run_here()
    found = list_checkpoints(run.output_dir / "checkpoints")
    assert [step for step, _ in found] == [4, 3]
    assert not any(damaged_files(folder, read_info(folder).files) for _, folder in found)
    found_spans = run.spans()
    assert [s["step"] for s in found_spans if s["name"] == "checkpoint"] == [3, 4]
    assert [s["step"] for s in found_spans if s["name"] == "checkpoint_upload"] == [3]
    noted_s = stop_requests.noted_stop_time_s(run.root / "tasks/1")
    upload_s = next(s["duration_s"] for s in found_spans if s["name"] == "checkpoint_upload")
    assert noted_s > 2 * upload_s


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_steps_are_in_the_records_before_a_checkpoint_of_them_has_its_name(
    make_train_run, monkeypatch, mode
):
    run = make_train_run(checkpoint={**BESIDE, "mode": mode})
    publish, seen = checkpoint_folders.publish_checkpoint, []

    def look_and_publish(temp_dir, final_dir, info, attempt):
        seen.append((info.step, len(run.steps())))
        publish(temp_dir, final_dir, info, attempt)

    monkeypatch.setattr(checkpoint_folders, "publish_checkpoint", look_and_publish)
    run.run_here()
    assert [step for step, _ in seen] == [3, 6]
    assert all(num_records >= step for step, num_records in seen)


class Clock(FakeClock):
    def monotonic(self):
        return self.perf_counter_ns() / 1e9


@pytest.fixture
def clock(monkeypatch):
    stopped = Clock()
    for module in (span_log, saver_module, measured_saver):
        monkeypatch.setattr(module, "time", stopped)
    return stopped


class SlowSaver:
    """Copies in 2 s; what goes on beside the steps takes 30 s, a save at once 25 s."""

    def __init__(self, clock):
        self.clock, self.under_way, self.done = clock, None, []

    def begin(self, step, _loss):
        self.clock.advance(2)
        self.under_way = step

    def save(self, step, _loss):
        self.clock.advance(25)
        self.done.append(step)

    def finish(self):
        if self.under_way is None:
            return None
        step, self.under_way = self.under_way, None
        return Upload(step=step, start_unix_s=100.0, duration_s=30.0)


def make_timed(tmp_path, clock, *, in_background):
    noted = []
    saver = MeasuredSaver(
        SlowSaver(clock),
        SpanLog(tmp_path, 0),
        start_step=0,
        in_background=in_background,
        note_stop_time=noted.append,
    )
    return saver, noted


def spans_of(tmp_path):
    found, _ = read_spans(spans_path(tmp_path, 0))
    return [(span["name"], span["step"], span["duration_s"]) for span in found]


def test_the_stall_and_the_background_save_are_separate_spans(tmp_path, clock):
    saver, noted = make_timed(tmp_path, clock, in_background=True)
    clock.advance(40)
    saver.save(10, 0.5, must_end=False)
    assert noted == [], "how long it takes is not known yet"
    saver.finish()
    saver.finish()
    assert spans_of(tmp_path) == [("checkpoint", 10, 2.0), ("checkpoint_upload", 10, 30.0)]
    # A step, the save that may be under way, and then the stop's own.
    assert noted == [pytest.approx(4 + 30 + 32)]


@pytest.mark.parametrize("in_background", [False, True])
def test_what_must_end_is_saved_at_once_in_either_mode(tmp_path, clock, in_background):
    saver, noted = make_timed(tmp_path, clock, in_background=in_background)
    clock.advance(40)
    saver.save(10, 0.5, must_end=True)
    assert spans_of(tmp_path) == [("checkpoint", 10, 25.0)]
    assert noted == [pytest.approx(4 + 25)]
