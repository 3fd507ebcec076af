from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_jobs.base.quantities import TimeShare, known
from slurm_jobs.report.rules.rule_table import find
from slurm_jobs.report.rules.stages.array_imbalance import array_imbalance
from slurm_jobs.report.rules.stages.queue_wait import queue_dominates
from slurm_jobs.report.rules.stages.slurm_requests import time_request
from slurm_jobs.report.rules.training.around_the_steps import around_steps
from slurm_jobs.report.rules.training.checkpoint_and_evaluation import checkpoint_stall
from slurm_jobs.report.rules.training.repeated_steps import repeated_steps
from tests.slurm_jobs.report.builders import check, edited, finding, report_on, stage_of

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def test_a_healthy_run_has_no_finding_about_its_training(report_of):
    report = report_of(**HEALTHY)
    assert [f.rule_id for f in report.findings if f.rule_id.endswith(":train")] == []


@pytest.mark.parametrize(("data_wait_s", "severity"), [(0.06, "medium"), (0.6, "high")])
def test_data_wait_is_judged_by_the_bands_of_xprof(report_of, data_wait_s, severity):
    found = finding(report_of(**{**HEALTHY, "data_wait_s": data_wait_s}), "data-wait")
    assert found.severity == severity
    assert "XProf" in found.source
    assert found.ceiling.startswith("no data wait: at most 1.")


def test_padding_straggler_and_lost_steps_are_found_where_they_are_planted(report_of):
    report = report_of(
        num_ranks=4, slow_rank_extra_s=0.3, padding_share=0.35, stopped_at=200, resumed_at=150
    )
    assert finding(report, "padding").severity == "high"
    assert "rank 3 on gpu-01" in finding(report, "straggler").title
    assert "50 steps were done twice" in finding(report, "repeated-steps").title


def test_a_rank_that_computes_slowly_is_named_though_all_steps_are_equal(report_of):
    report = report_of(**HEALTHY | {"num_ranks": 2}, slow_rank_forward_s=0.25)
    ranks = report.training[0].ranks
    assert ranks[0].step_mean_s == pytest.approx(ranks[1].step_mean_s)
    assert ranks[0].phases_s["rank_wait"] == pytest.approx(0.25)
    found = finding(report, "straggler")
    assert "rank 1 on gpu-01 slows down the others, most in forward" in found.title
    assert "lower bound" in found.text
    assert "at most" not in found.ceiling  # hidden waits may be added to what is timed
    assert found.next_knob.startswith("all ranks are on gpu-01: check what only rank 1 on gpu-01")
    assert "exclude" not in found.next_knob
    assert check(report, "unexplained").outcome == "clear"


def test_equally_grave_findings_are_ordered_by_how_much_there_is_to_gain(report_of):
    report = report_of(**{**HEALTHY, "padding_share": 0.8, "data_wait_s": 0.4})
    grave = [f for f in report.findings if f.severity == "high"]
    gains = [found.ceiling_times or 0.0 for found in grave]
    assert [found.rule_id for found in grave] == ["padding:train", "data-wait:train"]
    assert gains == sorted(gains, reverse=True)


def test_ranks_that_are_slow_in_turn_are_found_and_none_is_named(report_of):
    report = report_of(**HEALTHY, alternating_forward_s=0.3)
    found = finding(report, "straggler")
    assert "of each step waits for slower ranks" in found.title
    assert "No single rank is slow" in found.text


def test_what_the_exchange_itself_takes_is_no_wait_for_a_slow_rank(report_of):
    report = report_of(**HEALTHY, meeting_s=0.06)
    assert check(report, "straggler").outcome == "clear"
    found = finding(report, "meetings")
    assert found.title.startswith("10 % of each step is spent on exchanges")
    assert found.ceiling.startswith("no time in these exchanges: at most 1.12 times the speed")
    assert found.confidence == "high: each exchange is timed separately"
    assert check(report_of(**HEALTHY, alternating_forward_s=0.3), "meetings").outcome == "clear"


def on_cores(*pairs):
    """Headers of ranks with these cores, and these cores near their GPUs."""
    names = ("device", "cores", "cores_near_gpu")
    return {rank: dict(zip(names, ("cuda", *pair), strict=True)) for rank, pair in enumerate(pairs)}


@pytest.mark.parametrize(
    ("header", "outcome"),
    [
        ({}, "abstained"),
        (on_cores(("0-7", ""), ("8-15", "")), "abstained"),
        (on_cores(("0-99999999999", "0-7"), ("x", "0-7")), "abstained"),
        ({rank: {"device": "cpu", "cores": "0-1"} for rank in range(4)}, "clear"),
        (
            on_cores(("0-7", "0-31"), ("8-15", "0-31"), ("28-35", "32-63"), ("36-43", "32-63")),
            "clear",
        ),
    ],
)
def test_a_rank_is_far_from_its_gpu_only_where_its_record_says_so(report_of, header, outcome):
    assert check(report_of(**HEALTHY, header=header), "far-from-gpu").outcome == outcome


@pytest.mark.parametrize(
    ("header", "title", "far", "knob"),
    [
        (
            on_cores(("0-7", "32-63"), ("32-39", "0-31")),
            "2 ranks run far from their GPUs (train)",
            [("0 on gpu-01", "0-7", "32-63"), ("1 on gpu-01", "32-39", "0-31")],
            "GPUs in the order of their sockets, because other ranks have the cores near these",
        ),
        (
            on_cores(("0-7", "0-31"), ("8-15", "32-63")),
            "1 rank runs far from its GPU (train)",
            [("1 on gpu-01", "8-15", "32-63")],
            "cores near the GPUs: request whole nodes",
        ),
        (  # Eleven ranks of one core each, eight of them on the first of two nodes.
            on_cores(*((f"{n}", "0-31" if n < 5 else "32-63") for n in range(11))),
            "6 ranks run far from their GPUs (train)",
            [(f"{n} on gpu-0{n // 8 + 1}", f"{n}", "32-63") for n in range(5, 9)],
            "gres-flags: enforce-binding",
        ),
    ],
)
def test_ranks_far_from_their_gpus_are_named_with_the_remedy_that_fits(
    report_of, header, title, far, knob
):
    report = report_of(**HEALTHY | {"num_ranks": len(header)}, header=header)
    found = finding(report, "far-from-gpu")
    assert found.title == title
    lines = [f"rank {r} has cores {own}, and its GPU is near cores {near}" for r, own, near in far]
    assert list(found.evidence) == lines + ["and 2 more ranks"] * (len(header) > 10)
    assert knob in found.next_knob
    assert "; GPUs in" not in found.next_knob
    assert "PyTorch" in found.source


def test_a_ceiling_is_that_of_the_rank_that_waits_longest(report_of):
    """Removing all data wait leaves the rest of the slowest rank's step, and no rank less."""
    report = report_of(
        **HEALTHY | {"num_ranks": 2, "data_wait_s": 0.0}, slow_rank_extra_s=0.5, num_steps=200
    )
    slow = report.training[0].ranks[1]
    truth = slow.step_mean_s / (slow.step_mean_s - slow.phases_s["data_wait"])
    ceiling = finding(report, "data-wait").ceiling
    assert truth <= float(ceiling.split("at most ")[1].split()[0]) <= truth + 0.011
    assert truth > 1.9


def test_a_start_up_of_a_quarter_of_the_attempts_is_a_finding(report_of):
    numbers = report_of(num_steps=60, stopped_at=None).training[0]
    assert around_steps(numbers).outcome == "abstained"  # under two minutes deserve no advice
    longer = tuple(replace(s, seconds=10 * s.seconds) for s in numbers.budget)
    found = around_steps(replace(numbers, budget=longer))
    assert found.evidence[0].startswith("stage in: 2 min 20 s")


def test_a_run_of_seconds_gets_no_advice_at_all(report_of):
    report = report_of(
        num_steps=2, stopped_at=None, train_queue_s=20.0, task_times_s=(1.0, 1.0, 1.0, 9.0)
    )
    wall_s = report.header.last_unix_s - report.header.created_unix_s
    assert wall_s < 300
    assert report.findings == ()


def test_an_array_with_one_slow_task_is_called_unbalanced(report_of):
    report = report_of(task_times_s=(300.0, 310.0, 1200.0, 305.0, 290.0))
    found = finding(report, "array-imbalance", ":preprocess")
    assert "slice 2" in found.text
    assert check(report_of(), "array-imbalance", ":preprocess").outcome == "clear"


def test_a_queue_that_takes_most_of_the_time_is_found(report_of):
    found = finding(report_of(train_queue_s=4000.0), "queue-wait", "")
    assert found.ceiling.startswith("no such waits: the run is at most ")
    assert check(report_of(with_accounting=False), "queue-wait", "").outcome == "abstained"


def test_the_strongest_finding_comes_first_and_is_in_the_verdict(report_of):
    report = report_of(data_wait_s=0.6, task_times_s=(300.0, 310.0, 1200.0, 305.0))
    assert report.findings[0].rule_id == "data-wait:train"
    assert report.findings[0].title in report.verdict


def test_every_finding_carries_all_that_a_reader_needs(report_of):
    report = report_of(data_wait_s=0.6, padding_share=0.3, used_mem_share=0.2, num_ranks=3)
    assert len(report.findings) >= 4
    for found in report.findings:
        for part in ("title", "text", "evidence", "rule", "source", "next_knob", "ceiling"):
            assert getattr(found, part), (found.rule_id, part)


def test_every_rule_names_its_threshold_and_source_whatever_it_answered(report_of):
    for report in (report_of(), report_of(data_wait_s=0.6, with_accounting=False)):
        assert {found.outcome for found in report.checks} >= {"clear", "abstained"}
        for found in report.checks:
            assert found.rule, found.rule_id
            assert found.source, found.rule_id


def test_the_documents_table_has_every_rule(report_of):
    lines = (Path(__file__).parents[4] / "docs/reference/report-rules.md").read_text().splitlines()
    start = lines.index("| rule | finds | source |") + 2
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    documented = [name for row in rows for name in re.findall("`([a-z-]+)`", row.split("|")[1])]
    asked = {check.rule_id.partition(":")[0] for check in report_of().checks}
    assert sorted(documented) == sorted(asked)


def test_a_task_of_several_slices_is_advised_by_the_slice(report_of):
    stage = stage_of(report_of(), "preprocess")
    packed = replace(
        stage,
        slices_per_task=10,
        longest_s=known(6000, "s"),  # 100 of 600 minutes: timeout_min 60 for each of ten
        time_limit_s=known(36_000, "s"),
    )
    found = time_request(packed)
    assert found.next_knob == "timeout_min: 12 (1.2 x the longest job, for each of 10 slices)"
    assert array_imbalance(packed).outcome == "abstained"


def test_the_time_limit_of_a_stage_that_is_not_completed_is_not_judged(report_of):
    stage = stage_of(report_of(), "preprocess")
    failed = replace(
        stage, status="failed", longest_s=known(400, "s"), time_limit_s=known(36_000, "s")
    )
    assert time_request(failed).outcome == "abstained"


def test_a_queue_of_all_the_time_has_an_unknown_ceiling():
    queue = TimeShare(name="queue wait", kind="queue", seconds=3600, share=1.0)
    assert queue_dominates([queue], "").ceiling == "not known: nothing but waiting was recorded"


def test_the_queue_of_a_run_that_goes_on_is_not_judged(report_of):
    report = report_of()
    going = replace(report.stages[0], status="waiting")
    _, checks = find([going], [], report.timeline, "")
    assert {c.rule_id: c.outcome for c in checks}["queue-wait"] == "abstained"


def saving(training, share, **changes):
    """The training with such a share of its steps in checkpoints."""
    phases = tuple(
        replace(p, share=share) if p.kind == "checkpoint" else p for p in training.phases
    )
    return replace(training, phases=phases, **changes)


@pytest.mark.parametrize(
    ("saves", "knob"),
    [
        (
            {"mode": "async", "every_min": 30.0, "every_steps": 10},
            (
                "save less often: raise checkpoint.every_min (now 30) and checkpoint.every_steps "
                "(now 10), whichever comes first (a kill"
            ),
        ),
        (
            {"mode": "sync", "every_min": None, "every_steps": 10},
            "checkpoint.mode: async; or save less often: raise checkpoint.every_steps (now 10) (",
        ),
        ({}, "checkpoint.mode: async, if it is sync; or save less often: raise checkpoint."),
    ],
    ids=["async", "sync", "unknown"],
)
def test_advice_on_checkpoints_is_what_the_config_leaves_to_change(report_of, saves, knob):
    training = report_of(**HEALTHY).training[0]
    assert checkpoint_stall(saving(training, 0.2, checkpoint=saves)).next_knob.startswith(knob)


@pytest.mark.parametrize(
    ("share", "knob"), [(0.01, "save more often (checkpoint."), (0.2, "give the job more time")]
)
def test_no_two_rules_advise_saving_more_and_less_often(report_of, share, knob):
    training = report_of(**HEALTHY | {"stopped_at": 200, "resumed_at": 150}).training[0]
    assert repeated_steps(saving(training, share)).next_knob.startswith(knob)


def test_saves_that_are_always_made_are_not_to_be_made_less_often(report_of):
    training = report_of(num_steps=50, stopped_at=None).training[0]  # one save, in the last step
    assert not training.saves_ahead
    training = saving(training, 0.2, checkpoint={"every_min": 30.0})
    assert checkpoint_stall(training).outcome == "clear"  # seconds of training deserve no advice
    longer = replace(training, num_measured=10_000)
    assert checkpoint_stall(longer).next_knob.startswith(
        "no setting helps: all checkpoints were saved at an end"
    )
    assert report_of(num_steps=400, stopped_at=None).training[0].saves_ahead


def test_the_mode_of_checkpoints_is_that_of_the_resolved_config(run_of):
    paths, rows = run_of(**HEALTHY)
    saves = {"mode": "async", "every_min": 30.0, "every_steps": None}
    with edited(paths.resolved_spec) as spec:
        spec["stages"]["train"]["config"]["checkpoint"] = {**saves, "keep_last": 2}
    assert report_on(paths, rows).training[0].checkpoint == saves
