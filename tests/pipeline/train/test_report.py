"""What a training says while it runs; the clock is a stand-in, trackers keep what they are told."""

import logging
import math
from types import SimpleNamespace

import pytest

from pipeline.timing.recorder import StepCounts, StepOutcome
from pipeline.train import trackers
from pipeline.train.trackers import Course, TrainingReporter
from slurm_jobs.shared import files as progress_module
from slurm_jobs.shared.files import Progress, read_json
from tests.pipeline.timing.test_steps import COUNTS

OUTCOME = StepOutcome(loss=0.5, learning_rate=1e-3, grad_norm=2.0)


class Told:
    """In the place of `Trackers`: every second step."""

    def __init__(self):
        self.entries = []

    def are_due(self, num_steps_done):
        return num_steps_done % 2 == 0

    def log(self, values, num_steps_done):
        self.entries.append((num_steps_done, dict(values)))


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now_s=50.0)
    for module in (trackers, progress_module):
        fake = SimpleNamespace(monotonic=lambda: clock.now_s, time=lambda: clock.now_s)
        monkeypatch.setattr(module, "time", fake)
    return clock


def make(tmp_path, told, **changes):
    course = {"num_steps": 100, "num_ranks": 2, "log_every_steps": 4, "peak_flops_per_s": None}
    progress = Progress(tmp_path, "steps", 100)
    return TrainingReporter(progress, told, Course(**{**course, **changes}))


def steps(reporter, clock, numbers, step_s=1.5, outcome=OUTCOME):
    for number in numbers:
        clock.now_s += step_s
        reporter(number, outcome, COUNTS, 0.3, clock.now_s)


def detail(tmp_path):
    return read_json(tmp_path / "progress.json")["detail"]


def test_the_progress_says_loss_rate_wait_and_time_left(tmp_path, clock):
    reporter = make(tmp_path, Told())
    steps(reporter, clock, range(1, 11))
    # 40 tokens a step of each of 2 ranks in 1.5 s; 0.3 s of it waiting; 90 steps are left
    assert detail(tmp_path) == "loss 0.5000, 53 tokens/s, 20 % waiting for data, 2 min left"


def test_the_last_step_leaves_no_time_and_a_known_peak_shows_mfu(tmp_path, clock):
    reporter = make(tmp_path, Told(), peak_flops_per_s=COUNTS.model_flops)
    steps(reporter, clock, range(99, 101), step_s=2.0)
    assert detail(tmp_path).endswith("15 % waiting for data, MFU 50.0 %")


def test_time_left_follows_a_change_of_pace(tmp_path, clock):
    reporter = make(tmp_path, Told())
    steps(reporter, clock, range(1, 21), step_s=3.0)
    steps(reporter, clock, range(21, 41), step_s=10.0)
    assert detail(tmp_path).endswith("10 min left")


def test_trackers_are_told_rates_since_they_were_told_last(tmp_path, clock):
    told = Told()
    reporter = make(tmp_path, told)
    steps(reporter, clock, (1, 2), step_s=1.0)
    steps(reporter, clock, (3, 4), step_s=3.0)
    assert told.entries[0][0] == 2
    assert told.entries[0][1]["tokens_per_s"] == pytest.approx(80)
    assert told.entries[1] == (
        4,
        {
            "loss": 0.5,
            "learning_rate": 1e-3,
            "grad_norm": 2.0,
            "tokens_per_s": pytest.approx(80 / 3),
            "step_s": pytest.approx(3.0),
            "data_wait_share": pytest.approx(0.1),
        },
    )


def test_what_an_evaluation_found_is_handed_on_whatever_the_step(tmp_path, clock):
    told = Told()
    make(tmp_path, told).tell(7, {"look/exact_match": 0.5})
    assert told.entries == [(7, {"look/exact_match": 0.5})]


def test_what_is_not_finite_is_not_told(tmp_path, clock):
    told = Told()
    skipped = StepOutcome(loss=0.5, learning_rate=1e-3, grad_norm=math.inf)
    steps(make(tmp_path, told), clock, (1, 2), outcome=skipped)
    assert "grad_norm" not in told.entries[0][1]


def test_rates_leave_out_what_goes_before_a_loop_and_after_the_last_step(tmp_path, clock):
    told = Told()
    reporter = make(tmp_path, told)
    clock.now_s += 1000
    assert reporter.start_clock() is None
    steps(reporter, clock, (1, 2, 3), step_s=2.0)
    clock.now_s += 1000
    assert reporter.start_clock() == 1000  # of the next phase
    steps(reporter, clock, (4,), step_s=2.0)
    clock.now_s += 1000
    assert [entry["step_s"] for _, entry in told.entries] == pytest.approx([2.0, 2.0])
    assert reporter.elapsed_s == pytest.approx(8.0)


def test_the_log_has_a_line_now_and_then(tmp_path, clock, caplog):
    caplog.set_level(logging.INFO)
    steps(make(tmp_path, Told()), clock, range(1, 9))
    assert [line.partition(", ")[0] for line in caplog.messages] == [
        "step 4/100: loss 0.5000",
        "step 8/100: loss 0.5000",
    ]


def test_other_ranks_say_nothing_and_count_their_tokens(clock, caplog):
    caplog.set_level(logging.INFO)
    told = Told()
    course = Course(num_steps=8, num_ranks=2, log_every_steps=1, peak_flops_per_s=None)
    reporter = TrainingReporter(None, told, course)
    steps(reporter, clock, range(1, 9))
    assert (told.entries, caplog.messages) == ([], [])
    assert reporter.num_tokens == 8 * COUNTS.num_tokens


def test_counts_without_operations_still_have_rates(tmp_path, clock):
    counts = StepCounts(**{n: getattr(COUNTS, n) for n in COUNTS.__slots__ if n != "model_flops"})
    reporter = make(tmp_path, Told())
    clock.now_s += 3
    reporter(1, OUTCOME, counts, 0.0, clock.now_s)
    assert detail(tmp_path).startswith("loss 0.5000, 27 tokens/s")


def test_rates_are_by_when_steps_ended_not_by_when_their_outcome_was_known(tmp_path, clock):
    reporter = make(tmp_path, Told())
    clock.now_s += 3
    ended_s = clock.now_s
    clock.now_s += 100
    reporter(1, OUTCOME, COUNTS, 0.0, ended_s)
    assert detail(tmp_path).startswith("loss 0.5000, 27 tokens/s")
    assert reporter.elapsed_s == 3
