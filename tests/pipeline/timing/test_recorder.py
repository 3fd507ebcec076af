"""The recorder of steps."""

import json
import re

import numpy as np
import pytest

from pipeline.timing import recorder
from pipeline.timing.recorder import StepCounts, StepOutcome, StepRecorder
from slurm_jobs.formats.timings.record_headers import HEADERS_FORMAT_NAME
from slurm_jobs.formats.timings.step_records import (
    ADDED_FIELDS,
    DEVICE_FIELDS,
    STEP_FIELDS,
    STEP_PHASES,
    read_steps,
    steps_path,
)
from tests.pipeline.clock import stop_the_clock
from tests.pipeline.train import conftest

COUNTS = StepCounts(
    epoch=1,
    num_microbatches=2,
    num_samples=4,
    num_tokens=40,
    num_padding_tokens=2,
    num_supervised_tokens=9,
    num_images=4,
    num_image_tokens=16,
    model_flops=2e6,
)
OUTCOME = StepOutcome(loss=0.5, learning_rate=1e-3)


def steps_of(folder):
    return read_steps(steps_path(folder, 0)).steps


def record(recorder, num_steps, first=0):
    for step in range(first, first + num_steps):
        recorder.start_step(step)
        recorder.lap("data_wait_s")
        recorder.end_step(COUNTS, OUTCOME)


@pytest.fixture
def clock(monkeypatch):
    return stop_the_clock(monkeypatch)


def test_phases_sum_to_the_step_and_the_rest_is_other(tmp_path, clock):
    with StepRecorder(tmp_path, 3, {"node_name": "n1"}) as recorder:
        recorder.start_step(7)
        clock.advance(0.02)
        recorder.lap("data_wait_s")
        for _ in range(2):
            clock.advance(0.01)
            recorder.lap("forward_s")
        clock.advance(0.005)
        recorder.end_step(COUNTS, OUTCOME)
    file = read_steps(steps_path(tmp_path, 3))
    (step,) = file.steps
    assert file.metadata == {"rank": 3, "node_name": "n1"}
    assert step["step"] == 7
    assert step["data_wait_s"] == pytest.approx(0.02)
    assert step["forward_s"] == pytest.approx(0.02)
    assert step["other_s"] == pytest.approx(0.005)
    assert sum(float(step[name]) for name in STEP_PHASES) == pytest.approx(step["step_s"], abs=1e-6)
    assert step["num_supervised_tokens"] == 9
    assert step["memory_peak_bytes"] > 1e6


def test_compiling_is_set_apart_from_the_phase_that_it_happened_in(tmp_path, clock):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        recorder.start_step(0)
        clock.advance(3.0)
        recorder.set_apart("compile_s", 2_000_000_000)
        clock.advance(0.5)
        recorder.lap("forward_s")
        recorder.end_step(COUNTS, OUTCOME)
    (step,) = steps_of(tmp_path)
    assert [step[name] for name in ("compile_s", "forward_s", "step_s")] == [2.0, 1.5, 3.5]


def test_a_part_of_a_phase_is_recorded_without_adding_to_the_step(tmp_path, clock):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        recorder.start_step(0)
        clock.advance(0.5)
        recorder.lap("rank_wait_s", part="rank_wait_data_s")
        clock.advance(0.25)
        recorder.lap("rank_wait_s")
        recorder.end_step(COUNTS, OUTCOME)
        record(recorder, 1, first=1)  # which tells no part
    told, untold = steps_of(tmp_path)
    assert [told[name] for name in ("rank_wait_data_s", "rank_wait_s", "step_s")] == [
        0.5, 0.75, 0.75,
    ]  # fmt: skip
    assert np.isnan(untold["rank_wait_data_s"])


def test_data_wait_begins_before_the_loader_is_asked(tmp_path, clock):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        clock.advance(5.0)  # before the step: the loader's start
        recorder.start_step(0)
        asked_unix_s = clock.time()
        clock.advance(0.25)
        recorder.lap("data_wait_s")
        recorder.end_step(COUNTS, OUTCOME)
    (step,) = steps_of(tmp_path)
    assert step["start_unix_s"] == asked_unix_s
    assert step["data_wait_s"] == step["step_s"] == 0.25


def test_reporting_that_steps_begin_is_not_a_part_of_the_first_step(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(recorder, "begin_steps", lambda: clock.advance(0.5))  # a slow file system
    with StepRecorder(tmp_path, 0, {}) as timed:
        timed.start_step(0)
        clock.advance(0.25)
        timed.lap("data_wait_s")
        timed.end_step(COUNTS, OUTCOME)
        end_unix_s = clock.time()
    (step,) = steps_of(tmp_path)
    assert step["start_unix_s"] + step["step_s"] == end_unix_s
    assert step["data_wait_s"] == step["step_s"] == 0.25


def test_laps_of_one_step_do_not_leak_into_the_next(tmp_path, clock):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        recorder.start_step(0)
        clock.advance(0.02)
        recorder.lap("forward_s")
        recorder.end_step(COUNTS, OUTCOME)
        record(recorder, 1, first=1)
    assert steps_of(tmp_path)["forward_s"][1] == 0


def test_file_torn_by_a_kill_still_reads(tmp_path):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        record(recorder, 5)
    path = steps_path(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-7])
    assert read_steps(path).steps["step"].tolist() == [0, 1, 2, 3]


def write_with_fields(path, fields):
    header = json.dumps({"format": HEADERS_FORMAT_NAME, "fields": fields, "metadata": {}})
    records = np.ones(2, [(name, "<" + code) for name, code in fields])
    records["step"] = [0, 1]
    path.write_bytes(header.encode() + b"\n" + records.tobytes())


def test_file_of_an_older_version_still_reads_and_says_what_it_lacks(tmp_path):
    path = steps_path(tmp_path, 0)
    write_with_fields(path, [list(field) for field in STEP_FIELDS if field[0] not in ADDED_FIELDS])
    file = read_steps(path)
    assert file.lacking == ADDED_FIELDS.keys() >= {"rank_wait_s", "device_step_s", "mfu"}
    assert file.steps["rank_wait_s"].tolist() == file.steps["num_image_tokens"].tolist() == [0, 0]
    assert np.isnan(file.steps["device_forward_s"]).all()
    assert np.isnan(file.steps["mfu"]).all()
    assert np.isnan([file.steps[name] for name in ("rank_wait_data_s", "core_wait_s")]).all()
    assert file.steps["other_s"].tolist() == [1, 1]


def test_file_of_a_newer_version_reads_with_what_is_known(tmp_path):
    path = steps_path(tmp_path, 0)
    write_with_fields(path, [*([*field] for field in STEP_FIELDS[:-3]), ["phase_of_the_moon", "f4"],
                             *([*field] for field in STEP_FIELDS[-3:])])  # fmt: skip
    file = read_steps(path)
    assert file.lacking == frozenset()
    assert file.steps["loss"].tolist() == [1, 1]


def test_file_that_lacks_any_other_field_is_refused_by_name(tmp_path):
    path = steps_path(tmp_path, 0)
    write_with_fields(path, [list(field) for field in STEP_FIELDS if field[0] != "data_wait_s"])
    with pytest.raises(ValueError, match="lack data_wait_s"):
        read_steps(path)


def test_without_a_device_its_times_are_absent_and_so_is_mfu(tmp_path):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        record(recorder, 1)
    (step,) = steps_of(tmp_path)
    assert all(np.isnan(step[name]) for name in (*DEVICE_FIELDS, "mfu"))
    assert step["model_flops"] == 2e6


def test_mfu_is_of_the_step_without_checkpoint_evaluation_and_compiling(tmp_path, clock):
    with StepRecorder(tmp_path, 0, {}, peak_flops_per_s=1e7) as recorder:
        recorder.start_step(0)
        for phase, seconds in (
            ("data_wait_s", 0.1),
            ("forward_s", 0.3),
            ("checkpoint_s", 5.0),
            ("evaluation_s", 7.0),
            ("compile_s", 9.0),
        ):
            clock.advance(seconds)
            recorder.lap(phase)
        recorder.end_step(COUNTS, OUTCOME)
    (step,) = steps_of(tmp_path)
    assert step["mfu"] == pytest.approx(2e6 / 0.4 / 1e7)
    assert step["evaluation_s"] == 7.0


def test_with_sync_the_device_is_waited_for_before_each_lap_is_read(tmp_path, clock):
    def device_works():
        clock.advance(0.5)

    with StepRecorder(tmp_path, 0, {}, synchronize=device_works) as recorder:
        recorder.start_step(0)
        recorder.lap("forward_s")
        recorder.lap("backward_s")
        recorder.end_step(COUNTS, OUTCOME)
    (step,) = steps_of(tmp_path)
    assert step["forward_s"] == step["backward_s"] == 0.5


def test_crash_loses_only_what_waits_to_be_written(tmp_path):
    recorder = StepRecorder(tmp_path, 0, {})
    record(recorder, 3)
    recorder.flush()
    record(recorder, 1, first=3)
    assert len(steps_of(tmp_path)) == 3
    recorder.close()
    assert len(steps_of(tmp_path)) == 4


def test_crash_in_a_checkpoint_keeps_its_step_and_all_before(tmp_path):
    recorder = StepRecorder(tmp_path, 0, {})
    record(recorder, 3)
    recorder.start_step(3)
    recorder.lap("forward_s")
    recorder.write_so_far(COUNTS, OUTCOME)
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["loss"][-1] == 0.5
    assert sum(float(steps[-1][name]) for name in STEP_PHASES) == pytest.approx(
        steps[-1]["step_s"], abs=1e-6
    )
    recorder.close()


def test_step_written_before_its_checkpoint_gets_the_checkpoint_time_later(tmp_path, clock):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        record(recorder, 2)
        recorder.start_step(2)
        recorder.write_so_far(COUNTS, OUTCOME)
        clock.advance(0.25)
        recorder.lap("checkpoint_s")
        recorder.end_step(COUNTS, OUTCOME)
        recorder.start_step(3)
        recorder.end_step(COUNTS, OUTCOME)
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["checkpoint_s"].tolist() == [0, 0, 0.25, 0]
    assert steps["step_s"].tolist() == [0, 0, 0.25, 0]


def full_disk(path, *, num_bytes_left):
    """The file system takes so many more bytes of the file."""
    return conftest.full_disk(path.stat().st_size + num_bytes_left)


def test_full_disk_is_an_error_that_names_the_file_and_keeps_whole_records(tmp_path):
    recorder = StepRecorder(tmp_path, 0, {})
    record(recorder, 3)
    recorder.flush()
    record(recorder, 2, first=3)
    path = steps_path(tmp_path, 0)
    with full_disk(path, num_bytes_left=50), pytest.raises(OSError, match=re.escape(str(path))):
        recorder.flush()
    assert steps_of(tmp_path)["step"].tolist() == [0, 1, 2]
    record(recorder, 1, first=5)
    recorder.close()
    steps = steps_of(tmp_path)
    assert steps["step"].tolist() == [0, 1, 2, 3, 4, 5]
    assert steps["num_tokens"].tolist() == [40] * 6


def test_disk_full_before_a_checkpoint_leaves_nothing_of_the_open_step(tmp_path):
    recorder = StepRecorder(tmp_path, 0, {})
    record(recorder, 1)
    recorder.flush()
    recorder.start_step(1)
    with full_disk(steps_path(tmp_path, 0), num_bytes_left=50), pytest.raises(OSError):
        recorder.write_so_far(COUNTS, OUTCOME)
    recorder.end_step(COUNTS, OUTCOME)
    recorder.close()
    assert steps_of(tmp_path)["step"].tolist() == [0, 1]


def test_a_training_error_is_raised_even_if_its_records_cannot_be_written(tmp_path, caplog):
    recorder, path = StepRecorder(tmp_path, 0, {}), steps_path(tmp_path, 0)
    record(recorder, 1)
    with full_disk(path, num_bytes_left=50), pytest.raises(ValueError, match="loss"), recorder:
        raise ValueError("the loss")
    assert "step records of this rank are lost" in caplog.text


def test_records_that_cannot_be_written_in_the_end_are_an_error(tmp_path):
    recorder, path = StepRecorder(tmp_path, 0, {}), steps_path(tmp_path, 0)
    record(recorder, 1)
    with full_disk(path, num_bytes_left=50), pytest.raises(OSError), recorder:
        pass


def test_record_of_another_process_is_never_overwritten(tmp_path):
    StepRecorder(tmp_path, 0, {}).close()
    with pytest.raises(FileExistsError):
        StepRecorder(tmp_path, 0, {})


def test_an_evaluation_within_a_step_does_not_make_the_patience_longer(tmp_path, clock, last_beat):
    with StepRecorder(tmp_path, 0, {}) as recorder:
        for step, evaluation_s in enumerate([0.0, 600.0, 0.0]):
            recorder.start_step(step)
            clock.advance(0.25)
            recorder.lap("forward_s")
            clock.advance(evaluation_s)
            recorder.lap("evaluation_s")
            recorder.end_step(COUNTS, OUTCOME)
    beat = last_beat()
    assert beat["steps"] == 3
    assert (beat["median_step_s"], beat["longest_step_s"]) == pytest.approx((0.25, 0.25))
