"""What a training leaves for those who want to know where its time went, besides step records."""

import re

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.records.activity import ActiveProgress
from slurm_jobs.formats.timings.profiler_files import operators_path, read_operators, trace_path
from slurm_jobs.formats.timings.system_readings import read_system, system_path

EVERY_S = 0.1


@pytest.fixture(scope="module")
def observed_run(make_train_run):
    run = make_train_run(profile={"steps": [2, 3]}, sampler={"every_s": EVERY_S})
    run.run_here()
    return run


def test_the_profiled_steps_are_those_of_the_step_records(observed_run):
    table = read_operators(operators_path(observed_run.timing_dir(), 0))
    assert (table.first_step, table.num_steps) == (2, 2)
    assert {"aten::mm", "Optimizer.step#AdamW.step"} & {row.name for row in table.operators}
    assert (table.exposed_communication_s, table.communication_s) == (0.0, 0.0)  # one rank is alone
    assert trace_path(observed_run.timing_dir(), 0).stat().st_size > 0
    names = [span["name"] for span in observed_run.spans("profile")]
    assert names == ["profile_prepare", "profile_write"]


def test_the_node_is_read_from_staging_to_the_end(observed_run):
    file = read_system(system_path(observed_run.timing_dir(), 0))
    spans = {s["name"]: s for s in observed_run.spans()}
    first_s = file.readings["unix_s"][0] - file.readings["interval_s"][0]
    assert first_s <= spans["model_build"]["start_unix_s"]
    export = spans["export"]
    end_s = export["start_unix_s"] + export["duration_s"]
    assert file.readings["unix_s"][-1] >= end_s - EVERY_S / 2  # less than half an interval is left
    assert file.readings["job_cpu_s_per_s"][1:].max() > 0
    assert file.num_damaged == 0


def test_compiling_is_no_work_of_the_first_step_and_changes_no_loss(make_train_run, observed_run):
    run = make_train_run(compile={"backend": "eager"})
    assert run.run_here()["spread"]["num_compiled"] == 1
    steps = run.steps()
    assert steps["compile_s"][0] > steps["forward_s"][0] > 0
    assert steps["compile_s"][2:].tolist() == [0] * 4
    assert run.losses() == observed_run.losses()


@pytest.fixture
def shown(monkeypatch):
    """What the progress file of rank 0 said, each time that it was another activity."""
    shown = []
    write = ActiveProgress._write

    def remember(progress, done, *, detail="", activity=None):
        write(progress, done, detail=detail, activity=activity)
        if not shown or shown[-1] != (activity, done):
            shown.append((activity, done))

    monkeypatch.setattr(ActiveProgress, "_write", remember)
    return shown


def test_a_training_shows_what_it_does_between_its_steps(make_train_run, shown):
    run = make_train_run(
        num_steps=2,
        compile={"backend": "eager"},
        checkpoint={"every_steps": 1, "every_min": None},
    )
    run.run_here()
    activities = [activity for activity, _ in shown]
    before = ["importing", "waiting for the other ranks", "running preflight checks", "staging in"]
    assert activities[:6] == [*before, "loading the model", "planning batches"]
    assert {"loading a checkpoint", "compiling", "saving a checkpoint"} < {*activities}
    assert shown[-2:] == [(None, 2), ("exporting the model", 2)]


def test_an_attempt_after_the_last_step_shows_all_steps(make_train_run, shown):
    run = make_train_run(num_steps=2)
    run.run_here()
    shown.clear()
    run.run_here()
    assert shown[-1] == ("exporting the model", 2)


def test_compilation_in_trials_is_logged_before_the_first_step(make_train_run, caplog):
    caplog.set_level("INFO")
    run = make_train_run(
        num_steps=2,
        compile={"backend": "eager"},
        batching={"kind": "auto", "max_tokens": 64},
        log_every_steps=1,
    )
    run.run_here()
    numbers = [
        next(n for n, message in enumerate(caplog.messages) if message.startswith(words))
        for words in ("compiled a layer's", "step 1")
    ]
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_two_ranks_learn_the_same_with_kernels_of_inductor_within_rounding(make_train_run):
    sharded = {"num_steps": 4, "sharding": {"unit_min_params": 0}}
    plain = make_train_run(**sharded)
    plain.run()
    compiled = make_train_run(**sharded, compile={"towers": ["vision", "language"]})
    assert compiled.run()["spread"]["num_compiled"] == 2
    assert compiled.losses() == pytest.approx(plain.losses(), rel=1e-4)
    steps = compiled.steps(1)
    assert steps["compile_s"][0] > 0


def test_the_log_describes_the_parallelization_and_the_plan_in_words(make_train_run, caplog):
    caplog.set_level("INFO")
    make_train_run(num_steps=2).run_here()
    assert "StrategyFacts(" not in caplog.text
    (strategy,) = [m for m in caplog.messages if m.startswith("strategy: ")]
    assert "; forward and backward passes compute in fp32" in strategy
    (plan,) = [m for m in caplog.messages if m.startswith("plan: ")]
    assert re.fullmatch(
        r"plan: [\d,]+ parameters, each rank with \d+ CPU threads?; 2 steps of \d+ samples, each "
        r"rank's share (at once|in \d+ microbatches)",
        plan,
    )


def test_steps_to_profile_after_the_last_epoch_are_refused_at_once(make_train_run):
    run = make_train_run(num_steps=None, num_epochs=1, profile={"steps": [500, 510]})
    with pytest.raises(StageConfigError, match=r"begins at step 500, and the training has \d+,"):
        run.run_here()
