"""Run that tunes the training of a spec, and the reading of its result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.files import read_json
from slurm_jobs.common.references import REFERENCE, referenced_stage, substitute_references
from slurm_jobs.common.stage_config.phases import OWN
from slurm_jobs.common.stage_config.tune import RESULT_NAME, TUNE_RUN, TuneConfig
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.spec.loader import LoadedSpec
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides import steps_of
from slurm_jobs.tuning.model import START_UP_MIN

_NAME_END = "-tune"
_MOST_NAME = 40
_UNUSED = ("evaluate", "trackers")
"""Sections that trials do not use, and that may name files of omitted stages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Options of a tuning."""

    stage: str | None
    """Stage to tune; None: the only training."""
    budget_min: float
    data_run: Path | None
    """Finished run whose data set is used; None: the stages before the training make it."""


def tuning_spec(loaded: LoadedSpec, wanted: Wanted) -> LoadedSpec:
    """Return a spec that tunes the training: the stages before it, and trials instead of it.

    Raises:
        InputError: there is no such training, it is an array, or the other run has no data for it.
    """
    name = _choose(loaded.spec, wanted.stage)
    stage, is_alone = loaded.spec.stages[name], wanted.data_run is not None
    tuned = stage.model_copy(
        update={
            "run": TUNE_RUN,
            "config": _config(loaded, name, wanted),
            "nsight": False,
            "after": {} if is_alone else stage.after,
            "resources": stage.resources.model_copy(
                update={"timeout_min": wanted.budget_min + START_UP_MIN}
            ),
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


def _config(loaded: LoadedSpec, name: str, wanted: Wanted) -> dict[str, Any]:
    """Return the config of the tuning stage: see `TuneConfig`."""
    stage = loaded.spec.stages[name]
    train = {key: value for key, value in stage.config.items() if key not in _UNUSED}
    if wanted.data_run is not None:
        train = _with_data_of(train, wanted.data_run, loaded.spec, name)
    phases = train["phases"]
    return {
        "train": train,
        "budget_min": wanted.budget_min,
        "phase": longest_phase(phases) if phases else None,
        "cpus_per_task": stage.resources.cpus_per_task,
    }


def _choose(spec: RunSpec, wanted: str | None) -> str:
    trainings = [name for name, stage in spec.stages.items() if stage.run == "train"]
    listed = ", ".join(trainings)
    if not trainings:
        message = f"the spec has no training (`run: train`); its stages: {', '.join(spec.stages)}"
        raise InputError(message)
    if wanted is None and len(trainings) > 1:
        message = f"the spec has several trainings ({listed}); name one with --stage"
        raise InputError(message)
    if wanted is not None and wanted not in trainings:
        message = f"--stage {wanted}: no training is called so (trainings: {listed})"
        raise InputError(message)
    name = wanted or trainings[0]
    if spec.stages[name].array is not None:
        message = (
            f"{name} is an array of trainings, and one is tuned at a time: take `array` out, or "
            "tune a spec with a stage for one of them"
        )
        raise InputError(message)
    return name


def longest_phase(phases: Sequence[Mapping[str, Any]]) -> int:
    """Return the phase to tune: the one with most steps; phases in epochs count less."""
    return max(
        range(len(phases)),
        key=lambda n: (phases[n].get("num_steps") or 0, phases[n].get("num_epochs") or 0.0, -n),
    )


def _ancestors(spec: RunSpec, name: str) -> set[str]:
    found: set[str] = set()
    open_names = list(spec.stages[name].after)
    while open_names:
        parent = open_names.pop()
        if parent not in found:
            found.add(parent)
            open_names.extend(spec.stages[parent].after)
    return found


def _with_data_of(
    train: Mapping[str, Any], run_dir: Path, spec: RunSpec, name: str
) -> dict[str, Any]:
    """Return the config with the data set of another run, and with its folders for stage names."""
    _refuse_other_data(train, run_dir, name)
    paths = RunPaths(run_dir)
    stages = read_json(paths.resolved_spec)["stages"]
    made = [other for other, stage in stages.items() if stage.get("run") == "consolidate"]
    parents = [p for p in _ancestors(spec, name) if spec.stages[p].run == "consolidate"]
    chosen = [other for other in made if other in parents] or made
    if len(chosen) != 1:
        said = f"several data sets ({', '.join(chosen)})" if chosen else "no `consolidate` stage"
        message = (
            f"--data {run_dir.name}: this run has {said}; set config.dataset of {name} instead"
        )
        raise InputError(message)
    dataset = paths.output_dir(chosen[0])
    if not (dataset / "dataset.json").is_file():
        message = (
            f"--data {run_dir.name}: its stage {chosen[0]} has not made its data set yet\n"
            f"next: slurm-jobs status {shlex.quote(str(run_dir))}"
        )
        raise InputError(message)
    config = dict(train) if train["dataset"] is not None else {**train, "dataset": str(dataset)}
    named = {stage for text in _texts(config) for stage in _named(text)}
    missing = sorted(named - set(stages))
    if missing:
        message = f"--data {run_dir.name}: it has no stage {missing[0]}, which {name} refers to"
        raise InputError(message)
    folders = {other: str(paths.output_dir(other)) for other in stages}
    replaced: dict[str, Any] = substitute_references(config, folders)
    return replaced


def _refuse_other_data(train: Mapping[str, Any], run_dir: Path, name: str) -> None:
    """Refuse a data set that the config names by its folder: --data would have no effect."""
    place, folder = "dataset", train["dataset"]
    if train["phases"]:
        number = longest_phase(train["phases"])
        own = train["phases"][number].get("dataset")
        place, folder = (place, folder) if own is None else (f"phases.{number}.dataset", own)
    if folder is None or _named(folder):
        return
    key = f"stages.{name}.config.{place}"
    message = (
        f"--data {run_dir.name}: {key} names another data set, {folder}; leave --data out to tune "
        f"with that, or take it out of the spec to tune with the run's: --set {key}=null"
    )
    raise InputError(message)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value
    return [t for item in items for t in _texts(item)] if isinstance(value, (Mapping, list)) else []


def _named(text: str) -> list[str]:
    return [s for inner in REFERENCE.findall(text) if (s := referenced_stage(inner)) is not None]


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
    stages: Mapping[str, Any] = read_json(paths.resolved_spec)["stages"]
    name = next((name for name, stage in stages.items() if stage.get("run") == TUNE_RUN), None)
    if name is None:
        message = (
            f"{run_dir.name} is a run that tunes nothing; give the spec's file to tune its "
            "training, or a run that `slurm-jobs tune` made"
        )
        raise InputError(message)
    config = stages[name]["config"]
    return TuneRun(
        paths=paths,
        stage=name,
        phase=config["phase"],
        phases=config["train"]["phases"],
        overrides=_of_spec(read_json(paths.spec_origin), name),
    )


def _of_spec(origin: Mapping[str, Any], stage: str) -> tuple[str, ...]:
    """Remove what a resume set for the tuning: its own keys, and its job's time limit.

    All of the submit's count: its spec is the user's, and has no such keys.
    """
    overrides = tuple(origin["overrides"])
    first = origin.get("num_submitted_overrides", 0)  # runs of earlier versions do not record it
    return (*overrides[:first], *(o for o in overrides[first:] if not _is_tuning_own(o, stage)))


def _is_tuning_own(override: str, stage: str) -> bool:
    steps = steps_of(override)
    own = {field.name for field in fields(TuneConfig)}
    if steps[:3] == ["stages", stage, "config"]:
        return own.issuperset(steps[3:4])
    return steps == ["stages", stage, "resources", "timeout_min"]


def place_of(run: TuneRun, key: str) -> tuple[str | int, ...]:
    """Return where in the spec a dotted key of the training's config is set.

    A phase has some keys of its own; the training's keys are the same for all phases.
    """
    steps = tuple(key.split("."))
    if run.phase is not None and steps[0] in OWN:
        return ("stages", run.stage, "config", "phases", run.phase, *steps)
    return ("stages", run.stage, "config", *steps)
