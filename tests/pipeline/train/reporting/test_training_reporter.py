"""What a training says while it runs: progress, log lines, and entries for trackers."""

import logging
import math
from types import SimpleNamespace

import pytest

from pipeline.timing.recorder import StepCounts, StepOutcome
from pipeline.train.reporting import training_reporter
from pipeline.train.reporting.training_reporter import (
    TrainingFacts,
    TrainingReporter,
    tracked_values,
)
from pipeline.train.reporting.training_speed import Rates
from slurm_jobs.base.files import read_json
from slurm_jobs.formats.records import progress_file
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.timings.manifest_losses import ManifestLoss
from tests.pipeline.timing.test_recorder import COUNTS

OUTCOME = StepOutcome(loss=0.5, learning_rate=1e-3, grad_norm=2.0)


class Told:
    """In the place of `Trackers`: every second step."""

    def __init__(self):
        self.entries = []

    def are_due(self, num_steps_done):
        return num_steps_done % 2 == 0

    def log(self, values, num_steps_done):
        self.entries.append((num_steps_done, dict(values)))


class Reporting:
    """A reporter by a clock of its own, and what it was heard to say."""

    def __init__(self, tmp_path, monkeypatch):
        self.now_s, self.told, self._folder = 50.0, Told(), tmp_path
        fake = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: self.now_s)
        for module in (training_reporter, progress_file):
            monkeypatch.setattr(module, "time", fake)
        self.begin()

    def begin(self, *, is_main=True, **changes):
        facts = {"num_steps": 100, "num_ranks": 2, "log_every_steps": 4, "peak_flops_per_s": None}
        progress = Progress(self._folder, "steps", 100) if is_main else None
        self.reporter = TrainingReporter(progress, self.told, TrainingFacts(**{**facts, **changes}))

    def steps(self, numbers, step_s=1.5, *, outcome=OUTCOME, counts=COUNTS, known_after_s=0.0):
        for number in numbers:
            self.now_s += step_s
            ended_s = self.now_s
            self.now_s += known_after_s
            self.reporter(number, outcome, counts, 0.3, ended_s)

    def detail(self):
        return read_json(self._folder / "progress.json")["detail"]


@pytest.fixture
def reporting(tmp_path, monkeypatch):
    return Reporting(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("peak_flops_per_s", "steps", "said"),
    [
        # 40 tokens a step of each of 2 ranks in 1.5 s; 0.3 s of it waiting; 90 steps are left
        (
            None,
            [(range(1, 11), 1.5)],
            "loss 0.5000, 53 tokens/s, 20 % waiting for data, 2 min left",
        ),
        (COUNTS.model_flops, [(range(99, 101), 2.0)], "15 % waiting for data, MFU 50.0 %"),
        (None, [(range(1, 21), 3.0), (range(21, 41), 10.0)], "10 min left"),
    ],
    ids=["loss, rate, wait and time left", "the last step, a known peak", "a change of pace"],
)
def test_the_progress_says_what_is_known(reporting, peak_flops_per_s, steps, said):
    reporting.begin(peak_flops_per_s=peak_flops_per_s)
    for numbers, step_s in steps:
        reporting.steps(numbers, step_s)
    assert reporting.detail().endswith(said)


def test_trackers_get_rates_since_their_last_entry(reporting):
    reporting.steps((1, 2), step_s=1.0)
    reporting.steps((3, 4), step_s=3.0)
    (step, first), second = reporting.told.entries
    assert (step, first["tokens_per_s"]) == (2, pytest.approx(80))
    assert second == (
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


def test_results_of_an_evaluation_are_tracked_at_any_step(reporting):
    reporting.reporter.track(7, {"look/exact_match": 0.5})
    assert reporting.told.entries == [(7, {"look/exact_match": 0.5})]


def test_values_that_are_not_finite_are_not_tracked(reporting):
    reporting.steps((1, 2), outcome=StepOutcome(loss=0.5, learning_rate=1e-3, grad_norm=math.inf))
    assert "grad_norm" not in reporting.told.entries[0][1]


def test_losses_of_manifests_are_tracked_by_name():
    losses = [ManifestLoss(0.25, 3), ManifestLoss(math.nan, 0)]
    outcome = StepOutcome(loss=0.25, learning_rate=1e-3, by_manifest=losses)
    rates = Rates(tokens_per_s=1.0, step_s=1.0, data_wait_share=0.0, mfu=None)
    values = tracked_values(outcome, rates, ["photos", "charts"])
    assert values["loss/photos"] == 0.25
    assert "loss/charts" not in values


def test_rates_leave_out_what_goes_before_a_loop_and_after_the_last_step(reporting):
    reporting.now_s += 1000
    assert reporting.reporter.start_clock() is None
    reporting.steps((1, 2, 3), step_s=2.0)
    reporting.now_s += 1000
    assert reporting.reporter.start_clock() == 1000  # of the next phase
    reporting.steps((4,), step_s=2.0)
    reporting.now_s += 1000
    assert [entry["step_s"] for _, entry in reporting.told.entries] == pytest.approx([2.0, 2.0])
    assert reporting.reporter.elapsed_s == pytest.approx(8.0)


def test_the_log_has_a_line_now_and_then_and_other_ranks_count_tokens(reporting, caplog):
    caplog.set_level(logging.INFO)
    reporting.steps(range(1, 9))
    lines = ["step 4/100: loss 0.5000", "step 8/100: loss 0.5000"]
    assert [line.partition(", ")[0] for line in caplog.messages] == lines
    caplog.clear()
    reporting.told.entries.clear()
    reporting.begin(is_main=False, log_every_steps=1)
    reporting.steps(range(1, 9))
    assert (reporting.told.entries, caplog.messages) == ([], [])
    assert reporting.reporter.num_tokens == 8 * COUNTS.num_tokens


def test_counts_without_operations_still_have_rates_by_when_a_step_ended(reporting):
    """Not by when its outcome was known."""
    counts = StepCounts(**{n: getattr(COUNTS, n) for n in COUNTS.__slots__ if n != "model_flops"})
    reporting.steps((1,), 3.0, counts=counts, known_after_s=100)
    assert reporting.detail().startswith("loss 0.5000, 27 tokens/s")
    assert reporting.reporter.elapsed_s == 3
