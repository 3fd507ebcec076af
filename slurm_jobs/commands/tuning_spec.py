"""Run that tunes the training of a spec, and the reading of its result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import read_json
from slurm_jobs.formats.configs.command_stages import RESULT_NAME, TUNE_RUN, TuneConfig
from slurm_jobs.formats.configs.output_references import (
    REFERENCE,
    referenced_stage,
    substitute_references,
)
from slurm_jobs.formats.configs.training_phases import OWN
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides.apply import steps_of
from slurm_jobs.tuning.trial_model import START_UP_MIN

_NAME_END = "-tune"
_MOST_NAME = 40
_UNUSED = ("evaluate", "trackers")
"""Sections that trials do not use, and that may name files of omitted stages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningOptions:
    """Options of a tuning."""

    stage: str | None
    """Stage to tune; None: the only training."""
    budget_min: float
    data_run: Path | None
    """Finished run whose data set is used; None: the stages before the training make it."""


def tuning_spec(loaded: LoadedSpec, wanted: TuningOptions) -> LoadedSpec:
    """Return a spec that tunes the training: the stages before it, and trials instead of it.

    Raises:
        InputError: there is no such training, it is an array, or the other run has no data for it.
    """
    name = _choose(loaded.spec, wanted.stage)
    stage, is_alone = loaded.spec.stages[name], wanted.data_run is not None
    train = {key: value for key, value in stage.config.items() if key not in _UNUSED}
    if wanted.data_run is not None:
        train = _with_data_of(train, wanted.data_run, loaded.spec, name)
    config = {  # see `TuneConfig`
        "train": train,
        "budget_min": wanted.budget_min,
        "phase": longest_phase(train["phases"]) if train["phases"] else None,
        "cpus_per_task": stage.resources.cpus_per_task,
    }
    timeout = {"timeout_min": wanted.budget_min + START_UP_MIN}
    tuned = stage.model_copy(
        update={
            "run": TUNE_RUN,
            "config": config,
            "nsight": False,
            "after": {} if is_alone else stage.after,
            "resources": stage.resources.model_copy(update=timeout),
        }
    )
    before = set() if is_alone else _ancestors(loaded.spec, name)
    stages = {
        other: tuned if other == name else given
        for other, given in loaded.spec.stages.items()
        if other in before or other == name
    }
    new_name = loaded.spec.name[: _MOST_NAME - len(_NAME_END)] + _NAME_END
    spec = loaded.spec.model_copy(update={"name": new_name, "stages": stages})
    return replace(loaded, spec=RunSpec.model_validate_json(spec.model_dump_json(), strict=True))


def _choose(spec: RunSpec, wanted: str | None) -> str:
    trainings = [name for name, stage in spec.stages.items() if stage.run == "train"]
    listed = ", ".join(trainings)
    name = wanted or next(iter(trainings), "")
    message = ""
    if not trainings:
        message = f"the spec has no training (`run: train`); its stages: {', '.join(spec.stages)}"
    elif wanted is None and len(trainings) > 1:
        message = f"the spec has several trainings ({listed}); name one with --stage"
    elif name not in trainings:
        message = f"--stage {wanted}: no training is called so (trainings: {listed})"
    elif spec.stages[name].array is not None:
        message = (
            f"{name} is an array of trainings, and one is tuned at a time: take `array` out, or "
            "tune a spec with a stage for one of them"
        )
    if message:
        raise InputError(message)
    return name


def longest_phase(phases: Sequence[Mapping[str, Any]]) -> int:
    """Return the phase to tune: the one with most steps; phases in epochs count less."""
    return max(
        range(len(phases)),
        key=lambda n: (phases[n].get("num_steps") or 0, phases[n].get("num_epochs") or 0.0, -n),
    )


def _ancestors(spec: RunSpec, name: str) -> set[str]:
    names: set[str] = set()
    open_names = list(spec.stages[name].after)
    while open_names:
        parent = open_names.pop()
        if parent not in names:
            names.add(parent)
            open_names.extend(spec.stages[parent].after)
    return names


def _with_data_of(
    train: Mapping[str, Any], run_dir: Path, spec: RunSpec, name: str
) -> dict[str, Any]:
    """Return the config with the data set of another run, and with its folders for stage names.

    A data set that the config names by its folder is refused: --data would have no effect.
    """
    key, folder = "dataset", train["dataset"]
    if train["phases"]:
        number = longest_phase(train["phases"])
        of_phase = train["phases"][number].get("dataset")
        if of_phase is not None:
            key, folder = f"phases.{number}.dataset", of_phase
    paths = RunPaths(run_dir)
    stages = read_resolved_values(paths)["stages"]
    makers = [other for other, stage in stages.items() if stage.get("run") == "consolidate"]
    parents = [p for p in _ancestors(spec, name) if spec.stages[p].run == "consolidate"]
    chosen = [maker for maker in makers if maker in parents] or makers
    config = dict(train)
    problem = ""
    if folder is not None and not _referenced_stages(folder):
        key = f"stages.{name}.config.{key}"
        problem = (
            f"{key} names another data set, {folder}; leave --data out to tune with that, or take "
            f"it out of the spec to tune with the run's: --set {key}=null"
        )
    elif len(chosen) != 1:
        has = f"several data sets ({', '.join(chosen)})" if chosen else "no `consolidate` stage"
        problem = f"this run has {has}; set config.dataset of {name} instead"
    elif not (paths.output_dir(chosen[0]) / "dataset.json").is_file():
        problem = (
            f"its stage {chosen[0]} has not made its data set yet\n"
            f"next: slurm-jobs status {shlex.quote(str(run_dir))}"
        )
    else:
        if train["dataset"] is None:
            config["dataset"] = str(paths.output_dir(chosen[0]))
        missing = sorted(_referenced_stages(config) - set(stages))
        if missing:
            problem = f"it has no stage {missing[0]}, which {name} refers to"
    if problem:
        message = f"--data {run_dir.name}: {problem}"
        raise InputError(message)
    folders = {other: str(paths.output_dir(other)) for other in stages}
    replaced: dict[str, Any] = substitute_references(config, folders)
    return replaced


def _referenced_stages(value: Any) -> set[str]:
    stages: set[str] = set()
    if isinstance(value, str):
        for reference in REFERENCE.findall(value):
            stage = referenced_stage(reference)
            if stage is not None:
                stages.add(stage)
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            stages |= _referenced_stages(item)
    return stages


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneRun:
    """Tuning run on disk."""

    paths: RunPaths
    stage: str
    phase: int | None
    phases: Sequence[Mapping[str, Any]]
    overrides: tuple[str, ...]
    """Overrides of the spec, whose text lacks them."""

    @property
    def result_path(self) -> Path:
        """Exists once the run has ended."""
        return self.paths.output_dir(self.stage) / RESULT_NAME


def read_tune_run(run_dir: Path) -> TuneRun:
    """Return the tuning of a run.

    Raises:
        InputError: the run does not tune.
    """
    paths = RunPaths(run_dir)
    stages: Mapping[str, Any] = read_resolved_values(paths)["stages"]
    name = next((name for name, stage in stages.items() if stage.get("run") == TUNE_RUN), None)
    if name is None:
        message = (
            f"{run_dir.name} is a run that tunes nothing; give the spec's file to tune its "
            "training, or a run that `slurm-jobs tune` made"
        )
        raise InputError(message)
    config = stages[name]["config"]
    origin = read_json(paths.spec_origin)
    overrides = origin["overrides"]
    # Runs of earlier versions do not record how many the submission had. Those of a resume for the
    # tuning itself are not for the spec.
    first = origin.get("num_submitted_overrides", 0)
    remaining = [*overrides[:first]]
    for override in overrides[first:]:
        steps = steps_of(override)
        is_config = steps[:3] == ["stages", name, "config"]
        of_tuning = {field.name for field in fields(TuneConfig)}.issuperset(steps[3:4])
        if not (is_config and of_tuning) and steps != ["stages", name, "resources", "timeout_min"]:
            remaining.append(override)
    return TuneRun(
        paths=paths,
        stage=name,
        phase=config["phase"],
        phases=config["train"]["phases"],
        overrides=tuple(remaining),
    )


def place_of(run: TuneRun, key: str) -> tuple[str | int, ...]:
    """Return where in the spec a dotted key of the training's config is set.

    A phase has some keys of its own; the training's keys are the same for all phases.
    """
    steps = tuple(key.split("."))
    if run.phase is not None and steps[0] in OWN:
        return ("stages", run.stage, "config", "phases", run.phase, *steps)
    return ("stages", run.stage, "config", *steps)
