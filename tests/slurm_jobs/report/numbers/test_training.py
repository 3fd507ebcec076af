from __future__ import annotations

import io
import math
import time

import numpy as np
import pytest
from rich.console import Console

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import RankTiming, StageInputs, read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.report.rules.training_rules import meetings, straggler
from slurm_jobs.report.terminal import print_report
from slurm_jobs.report.training_numbers import training_numbers
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.files import read_json, write_json_atomic
from slurm_jobs.shared.records import AttemptRecord
from slurm_jobs.shared.timings import StepFile


def phase(numbers, kind):
    return next(p for p in numbers.phases if p.kind == kind)


def test_phases_add_up_to_the_whole_step_over_all_ranks_and_for_each(report_of):
    numbers = report_of().training[0]
    assert sum(p.share for p in numbers.phases) == pytest.approx(1.0)
    for rank in numbers.ranks:
        assert sum(rank.phases_s.values()) == pytest.approx(rank.step_mean_s)


def test_time_that_no_phase_recorded_shows_as_unexplained(fabrication):
    steps = make_steps(fabrication, 60)
    steps["step_s"] += 0.2
    numbers = numbers_of([[steps]])
    assert phase(numbers, "unexplained").seconds == pytest.approx(0.203, rel=1e-3)


def test_steps_done_again_count_once_and_are_called_lost(report_of):
    numbers = report_of(num_steps=400, stopped_at=170, resumed_at=150).training[0]
    assert numbers.num_steps == 400
    assert numbers.num_repeated_steps == 20
    assert numbers.repeated_s > 10
    assert numbers.num_attempts == 2
    assert numbers.curves.resumed_at == (150,)
    assert list(numbers.curves.step) == sorted(numbers.curves.step)


def report_after_new_config(fabrication, run_dir, **properties):
    """The second attempt of the training worked under another fingerprint."""
    paths, rows = fabrication.fabricate(run_dir, fabrication.Scenario(**properties))
    record = paths.attempt("train", 0, 2)
    write_json_atomic(record, {**read_json(record), "fingerprint": "0ther"})
    return build_report(read_inputs(paths, rows), ReportConfig())


def test_steps_of_an_abandoned_config_are_not_called_repeated(fabrication, tmp_path):
    report = report_after_new_config(fabrication, tmp_path / "run", stopped_at=60, resumed_at=0)
    numbers = report.training[0]
    assert (numbers.num_steps, numbers.num_repeated_steps, numbers.repeated_s) == (400, 0, 0.0)
    assert numbers.num_abandoned_steps == 60
    assert numbers.abandoned_s > 30
    assert not any("repeated-steps" in finding.rule_id for finding in report.findings)
    note = "train, attempt 1: 60 steps under an earlier config or code"
    assert any(n.startswith(note) for n in report.notes)
    assert numbers.curves.resumed_at == ()
    shares = {s.name: s.seconds for s in numbers.budget}
    assert shares["steps of an earlier config"] == pytest.approx(numbers.abandoned_s)
    assert "steps repeated later" not in shares


def test_steps_that_a_new_config_goes_on_from_and_does_again_are_repeated(fabrication, tmp_path):
    report = report_after_new_config(fabrication, tmp_path / "run", stopped_at=170, resumed_at=150)
    numbers = report.training[0]
    assert (numbers.num_steps, numbers.num_repeated_steps) == (400, 20)
    assert numbers.num_abandoned_steps == 0
    assert not any("earlier config" in note for note in report.notes)


def test_a_config_that_went_on_from_another_is_the_same_training_from_then_on(fabrication):
    steps = make_steps(fabrication, 100)
    attempts = [[steps[:60]], [steps[40:80]], [steps], [steps[:30]]]
    numbers = numbers_of(attempts, fingerprints=("one", "two", "two", "one"))
    assert (numbers.num_repeated_steps, numbers.num_abandoned_steps) == (60 + 40 + 100, 0)


def test_steps_before_the_first_checkpoint_are_repeated_if_the_training_says_so(fabrication):
    steps = make_steps(fabrication, 100)
    attempts, fingerprints = [[steps[:60]], [steps]], ("one", "two")
    told = numbers_of(attempts, fingerprints=fingerprints, training="7ra1n")
    assert (told.num_repeated_steps, told.num_abandoned_steps) == (60, 0)
    old = numbers_of(attempts, fingerprints=fingerprints)
    assert (old.num_repeated_steps, old.num_abandoned_steps) == (0, 60)


def test_within_an_abandoned_config_what_was_done_twice_is_repeated(fabrication):
    steps = make_steps(fabrication, 100)
    attempts = [[steps[:60]], [steps[40:80]], [steps]]
    numbers = numbers_of(attempts, fingerprints=("one", "one", "two"))
    assert (numbers.num_steps, numbers.num_repeated_steps) == (100, 20)
    assert numbers.num_abandoned_steps == 40 + 40
    same = numbers_of(attempts, fingerprints=("one", "one", "one"))
    assert (same.num_repeated_steps, same.num_abandoned_steps) == (60 + 40, 0)


def test_the_loss_at_the_end_says_of_how_many_steps_it_is_the_mean(report_of, fabrication):
    report = report_of(num_steps=400, stopped_at=None)
    steps = make_steps(fabrication, 400)
    numbers = report.training[0]
    assert numbers.num_last_losses == 8
    assert numbers.last_loss.value == pytest.approx(float(steps["loss"][-8:].mean()))
    assert numbers.first_loss.value == pytest.approx(float(steps["loss"][0]))
    page = render_html(report)
    assert "loss, mean of the last 8 steps" in page
    assert "last loss" not in page
    assert "mean of the last 8 steps" in report.tiles[-1].note
    console = Console(file=io.StringIO(), width=200)
    print_report(report, console)
    assert "(mean of the last 8 steps) nats/token" in console.file.getvalue()
    assert report_of(num_steps=40, stopped_at=None).tiles[-1].note.endswith("last step")


def test_the_loss_of_levels_is_a_weighted_sum_and_none_of_a_token(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario())
    spec = read_json(paths.resolved_spec)
    spec["stages"]["train"]["config"]["levels"] = [{"name": "a"}, {"name": "b"}]
    write_json_atomic(paths.resolved_spec, spec)
    report = build_report(read_inputs(paths, rows), ReportConfig())
    console = Console(file=io.StringIO(), width=200)
    print_report(report, console)
    page, told = render_html(report), console.file.getvalue()
    assert "steps) nats, weighted sum over levels" in told
    assert page.count("nats, weighted sum over levels") >= 3
    assert "nats/token" not in page + told


def test_a_run_without_a_stop_repeats_nothing(report_of):
    numbers = report_of(stopped_at=None).training[0]
    assert (numbers.num_repeated_steps, numbers.repeated_s) == (0, 0.0)


def test_the_first_steps_of_each_attempt_are_warm_up(report_of):
    numbers = report_of(num_steps=400).training[0]
    assert numbers.num_measured == 400 - 2 * 5
    assert numbers.step_p95_s.value < 1.0


def test_rates_are_over_wall_time_waits_included(report_of):
    numbers = report_of(stopped_at=None, data_wait_s=0.3).training[0]
    mean_step_s = numbers.ranks[0].step_mean_s
    assert numbers.steps_per_s.value == pytest.approx(1 / mean_step_s, rel=1e-3)
    assert numbers.samples_per_s.value == pytest.approx(64 / mean_step_s, rel=1e-3)


def test_a_clock_that_is_set_back_changes_no_rate_and_is_named(fabrication):
    steps = make_steps(fabrication, 60)
    even = numbers_of([[steps]])
    back = steps.copy()
    back["start_unix_s"][30:] -= 100.0
    numbers = numbers_of([[back]])
    assert numbers.tokens_per_s == even.tokens_per_s
    assert numbers.curves.tokens_per_s == even.curves.tokens_per_s
    assert even.notes == ()
    assert "wall clock" in numbers.notes[0]


def test_a_rank_that_recorded_fewer_steps_lowers_no_rate_and_is_named(fabrication):
    steps = make_steps(fabrication, 100)
    even, short = numbers_of([[steps[:60], steps[:60]]]), numbers_of([[steps, steps[:60]]])
    assert short.tokens_per_s == even.tokens_per_s
    assert short.samples_per_s == even.samples_per_s
    assert "60 by rank 1, 100 at most" in short.notes[0]


def test_an_attempt_of_which_a_rank_left_no_records_has_no_rate(fabrication):
    steps = make_steps(fabrication, 60)
    numbers = numbers_of([[steps]], num_ranks=2)
    assert numbers.num_ranks == 2
    assert numbers.tokens_per_s.value is None
    assert "records of all its ranks" in numbers.tokens_per_s.missing
    assert "1 of 2 ranks left no step records" in numbers.notes[0]


def test_notes_on_the_records_stand_in_the_report(fabrication, tmp_path):
    paths, rows = fabrication.fabricate(tmp_path / "run", fabrication.Scenario(stopped_at=None))
    file = paths.timing_dir("train", 0, 1) / "rank-00001.steps"
    file.write_bytes(file.read_bytes()[:-20_000])
    report = build_report(read_inputs(paths, rows), ReportConfig())
    assert any(note.startswith("train, attempt 1: the ranks rec") for note in report.notes)


def test_padding_is_the_share_of_all_token_slots(report_of):
    numbers = report_of(padding_share=0.3).training[0]
    assert numbers.padding_share.value == pytest.approx(0.3, abs=0.002)


def test_the_rank_that_waits_longest_for_data_is_named(report_of):
    straggler = report_of(num_ranks=4, slow_rank_extra_s=0.25).training[0].straggler
    assert straggler.data_rank == 3
    assert straggler.data_excess_s == pytest.approx(0.25 * 3 / 4, rel=0.1)


def test_too_few_steps_are_said_and_not_judged(report_of):
    report = report_of(num_steps=24, stopped_at=None)
    assert "19 steps after a warm-up of 5" in report.training[0].too_few
    abstained = {c.rule_id for c in report.checks if c.outcome == "abstained"}
    assert {"data-wait:train", "padding:train"} <= abstained


def test_fewer_steps_than_the_warm_up_break_nothing(report_of):
    numbers = report_of(num_steps=3, stopped_at=None).training[0]
    assert numbers.phases == ()
    assert numbers.tokens_per_s.value is None
    assert "warm-up" in numbers.tokens_per_s.missing


def test_the_budget_of_the_attempts_adds_up_and_names_start_up(report_of):
    numbers = report_of().training[0]
    shares = {s.name: s.seconds for s in numbers.budget}
    assert sum(s.share for s in numbers.budget) == pytest.approx(1.0)
    assert shares["stage in"] == pytest.approx(14.0)
    assert shares["start-up again"] == pytest.approx(32.0)  # staging, model, checkpoint
    assert shares["steps repeated later"] == pytest.approx(numbers.repeated_s)
    assert list(shares)[-1] == "unexplained"


def test_curves_of_a_long_run_stay_short(fabrication):
    numbers = numbers_of([[make_steps(fabrication, 20_000)]])
    assert len(numbers.curves.loss) == 240


def test_a_hundred_thousand_steps_of_eight_ranks_take_seconds(fabrication):
    ranks = [make_steps(fabrication, 100_000)] * 8
    start = time.process_time()
    numbers_of([ranks])
    assert time.process_time() - start < 20  # a quadratic one takes minutes


def test_a_rank_killed_early_shortens_the_curves_not_the_progress(fabrication):
    steps = make_steps(fabrication, 100)
    numbers = numbers_of([[steps, steps[:60]]])
    assert numbers.num_steps == numbers_of([[steps[:60], steps]]).num_steps == 100
    assert numbers.curves.step[-1] < 60


def test_a_ceiling_counts_in_each_step_the_rank_that_waits_longest_in_it(fabrication):
    ranks = [fabrication.fabricate_steps(fabrication.Scenario(), r, 0, 60, 0.0) for r in (0, 1)]
    for rank, steps in enumerate(ranks):
        steps["step_s"] = 1.0
        steps["data_wait_s"] = np.where(steps["step"] % 2 == rank, 0.6, 0.0)
    numbers = numbers_of([ranks])
    assert numbers.critical_shares["data_wait"] == pytest.approx(0.6)
    assert next(p.share for p in numbers.phases if p.kind == "data_wait") == pytest.approx(0.3)


def test_ranks_that_wait_in_turn_have_a_ceiling_with_an_end(fabrication):
    """They do not meet in every step: each has its long steps where the other has short ones."""
    ranks = [fabrication.fabricate_steps(fabrication.Scenario(), r, 0, 60, 0.0) for r in (0, 1)]
    for rank, steps in enumerate(ranks):
        waits = steps["step"] % 2 == rank
        steps["step_s"] = np.where(waits, 1.0, 0.1)
        steps["data_wait_s"] = np.where(waits, 0.9, 0.0)
    shares = numbers_of([ranks]).critical_shares
    assert shares["data_wait"] == pytest.approx(0.9)
    assert max(shares.values()) <= 1


def test_records_without_the_waits_for_other_ranks_are_not_called_even(fabrication):
    ranks = [make_steps(fabrication, 60), make_steps(fabrication, 60)]
    old = numbers_of([ranks], lacking=frozenset({"rank_wait_s"}))
    assert old.straggler.slowest_over_mean is None
    check = straggler(old)
    assert (check.outcome, "older version" in check.reason) == ("abstained", True)


def last_in_turn(fabrication, *, is_apart):
    """Two ranks; rank 0 is last for the batch, rank 1 before the update, each by 0.3 s of 1 s.

    Each exchange takes 0.02 s by itself.
    """
    ranks = [fabrication.fabricate_steps(fabrication.Scenario(), r, 0, 60, 0.0) for r in (0, 1)]
    for steps, first_s in zip(ranks, (0.02, 0.32), strict=True):
        steps["step_s"], steps["rank_wait_s"] = 1.0, 0.34
        steps["rank_wait_data_s"] = first_s if is_apart else math.nan
    return numbers_of([ranks])


def test_the_price_of_each_exchange_is_the_wait_of_the_rank_that_came_last_to_it(fabrication):
    numbers = last_in_turn(fabrication, is_apart=True)
    assert (numbers.meeting_share, numbers.meetings_apart) == (pytest.approx(0.04), True)
    assert meetings(numbers).outcome == "clear"


def test_older_records_tell_both_exchanges_together_and_the_rule_says_so(fabrication):
    numbers = last_in_turn(fabrication, is_apart=False)
    assert (numbers.meeting_share, numbers.meetings_apart) == (pytest.approx(0.34), False)
    assert meetings(numbers).confidence.startswith(
        "medium: these records, of an older version, combine"
    )


def make_steps(fabrication, num_steps) -> np.ndarray:
    scenario = fabrication.Scenario(num_ranks=1)
    return fabrication.fabricate_steps(scenario, 0, 0, num_steps, fabrication.CREATED)


def make_attempt(number, fingerprint) -> AttemptRecord:
    return AttemptRecord(
        stage="train", slice_index=0, attempt=number, job_id="7", token="t7", pid=1, host="n1",
        fingerprint=fingerprint, started_unix_s=0.0, node_names=("n1",), num_ranks=1, restart=0,
        scheduler="local",
    )  # fmt: skip


def numbers_of(attempts, lacking=frozenset(), fingerprints=(), **metadata):
    """The numbers of a stage with the given records: a list of attempts, each a list of ranks."""
    timings = tuple(
        RankTiming(
            slice_index=0,
            attempt=attempt,
            rank=rank,
            steps=StepFile(metadata=metadata, steps=steps, lacking=lacking),
            spans=(),
        )
        for attempt, ranks in enumerate(attempts, 1)
        for rank, steps in enumerate(ranks)
    )
    stage = StageInputs(
        name="train",
        run="train",
        after={},
        num_slices=1,
        resources={},
        attempts=tuple(make_attempt(n, word) for n, word in enumerate(fingerprints, 1)),
        completions=(),
        timings=timings,
    )
    return training_numbers(stage, (), 5)[0]
