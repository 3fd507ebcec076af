"""Stage that `slurm-jobs tune` runs instead of a training: trials in one allocation.

Rank 0 gets the next trial from the progress so far, runs it on all ranks, and records the result.
The stage's Python needs numpy in addition to the training's packages: the report's readers use it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import slurm_jobs
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.command_stages import RESULT_NAME, SAID, TuneConfig
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.task_context import TaskContext, resume_command
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.tuning.job_trials import end_trials, run_parts, run_trial, trial_timing_dir
from slurm_jobs.tuning.knobs import Hardware
from slurm_jobs.tuning.search import progress_of
from slurm_jobs.tuning.summary import result_of
from slurm_jobs.tuning.trial_config import base_config, measure_config
from slurm_jobs.tuning.trial_journal import add_trial, next_number, read_trials
from slurm_jobs.tuning.trial_model import Ask, Trial, budget_settings
from slurm_jobs.tuning.trial_results import read_trial
from slurm_jobs.tuning.tuning_progress import Facts, TuningProgress
from slurm_jobs.tuning.tuning_sentence import headline
from slurm_jobs.worker.job_identity import free_port


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any] | None:
    """Tune, or continue after an earlier attempt; called once on every rank.

    Raises:
        StageConfigError: the training cannot be tried, or the budget is too small for it.
        StageStoppedError: asked to stop; the next attempt continues after the last trial.
    """
    if context.rank != 0:
        run_parts(context)
        return None
    return _tune(build_config(TuneConfig, config), context)


def _tune(tune: TuneConfig, context: TaskContext) -> dict[str, Any]:
    train = base_config(tune)
    record = RunPaths(context.run_dir).attempt(context.stage, context.slice_index, context.attempt)
    facts = Facts(
        train=train,
        hardware=Hardware(
            device=train["device"],
            num_ranks=context.num_ranks,
            cpus_per_task=tune.cpus_per_task,
        ),
        nodes=tuple(read_json(record)["node_names"]),
        budget_s=tune.budget_min * 60,
    )
    basis = _basis(facts, context)
    trials = [t for t in read_trials(context.output_dir) if t.basis == basis]
    if trials:
        print(f"continues after {len(trials)} trials of earlier attempts", flush=True)
    progress = Progress(context.task_dir, "s", round(facts.budget_s))
    count = 0
    while (ask := (tuning := progress_of(facts, trials)).ask) is not None:
        count += 1
        spent_s = sum(trial.wall_s for trial in trials)
        what = "data kept in memory" if ask.num_kept_steps else "as it is"
        if ask.changes:
            what = ask.changes[-1].text if ask.purpose == "knob" else "after"
        detail = "probe" if ask.purpose == "probe" else f"{ask.purpose}: {what}"
        progress.update(min(round(spent_s), progress.total - 1), detail=detail)
        trial = _make(ask, count, basis, facts, context)
        add_trial(context.output_dir, trial)
        trials.append(trial)
        print(_line(trial), flush=True)
    if tuning.problem:
        raise _without_result(tuning.problem, tuning, context)
    result = result_of(facts, tuning, trials, stage=context.stage)
    write_json_atomic(context.output_dir / RESULT_NAME, result)
    end_trials(context)
    closing = result["closing"] or {}
    return {
        "num_trials": result["num_trials"],
        "num_kept": len(result["kept"]),
        "num_tried": len(tuning.tried),
        "times_faster": closing.get("ratio"),
        "word": closing.get("word"),
        SAID: headline(result),
    }


def _basis(facts: Facts, context: TaskContext) -> str:
    """Return a hash that is equal for comparable trials: the same training, ranks and code."""
    code = Path(slurm_jobs.__file__).resolve().parent.parent.parent.name
    hardware = [facts.hardware.num_ranks, facts.hardware.cpus_per_task]
    values = [facts.train, hardware, code, context.num_again]
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


def _make(ask: Ask, count: int, basis: str, facts: Facts, context: TaskContext) -> Trial:
    """Run a trial; it fails if its processes fail, or leave no usable records."""
    began_s = time.monotonic()
    config = measure_config(facts.train, ask, num_ranks=context.num_ranks)
    failure = run_trial(context, count, config, port=free_port(), limit_s=ask.limit_s)
    folder, measured, stage_in_s = trial_timing_dir(context, count), {}, 0.0
    if not failure:
        try:
            reading = read_trial(folder, context.stage, config["train"])
        except StageError as error:
            failure = str(error)
        else:
            stage_in_s = reading.stage_in_s
            measured = {
                name: getattr(reading, name)
                for name in ("tokens_per_s", "samples_per_s", "step_s", "data_wait_share")
            } | {"memory_peak_bytes": reading.memory_peak_bytes, "causes": reading.causes}
    return Trial(
        number=next_number(context.output_dir),
        basis=basis,
        purpose=ask.purpose,
        comparison=ask.comparison,
        arm=ask.arm,
        changes=ask.changes,
        num_steps=ask.num_steps,
        nodes=facts.nodes,
        wall_s=max(0.0, time.monotonic() - began_s - stage_in_s),
        failure=failure,
        timing_dir=str(folder.relative_to(context.run_dir)),
        **measured,
    )


def _without_result(problem: str, tuning: TuningProgress, context: TaskContext) -> StageConfigError:
    """Return the error of a search without a result, with the budget that it needs if known."""
    if tuning.advised_budget_min is None:
        return StageConfigError(problem)
    settings = budget_settings(context.stage, tuning.advised_budget_min)
    options = [word for setting in settings for word in ("--set", setting)]
    command = resume_command(context.run_dir, *options)
    return StageConfigError(f"{problem}, or `{command}`", resumes=[options])


def _line(trial: Trial) -> str:
    what = ", ".join(change.text for change in trial.changes) or "as it is"
    result = trial.failure or f"{trial.speed:,.1f} tokens/s, {trial.data_wait_share:.1%} data wait"
    arm = f"{trial.purpose} {trial.arm}"
    return f"trial {trial.number} ({arm}; {what}): {result}; {trial.wall_s:.1f} s"
