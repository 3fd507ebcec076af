"""Run that tunes the training of a spec, and the reading of its result."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.commands.read_spec import disk_files
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.configs.stages import RESULT_NAME, SPEC_NAME, TUNE_RUN, TuneConfig
from slurm_jobs.shared.configs.train import OWN
from slurm_jobs.shared.errors import InputError, SpecError
from slurm_jobs.shared.expand import (
    REFERENCE,
    literal_path,
    referenced_stage,
    substitute_references,
)
from slurm_jobs.shared.files import read_json, write_text_atomic
from slurm_jobs.shared.redact import hidden_values
from slurm_jobs.spec.load import LoadedSpec, load_spec
from slurm_jobs.spec.model import BUILTIN_STAGES, RunSpec, config_class
from slurm_jobs.spec.overrides import EditError, edit_text, sets_value, steps_of
from slurm_jobs.spec.spec_files import Files, Surroundings, resolve_marked
from slurm_jobs.spec.yaml import read_yaml
from slurm_jobs.tuning.knobs import START_UP_MIN

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
    origin = read_json(paths.spec_origin)
    overrides = tuple(origin["overrides"])
    first = origin.get("num_submitted_overrides", 0)  # runs of earlier versions do not record it
    return TuneRun(
        paths=paths,
        stage=name,
        phase=config["phase"],
        phases=config["train"]["phases"],
        overrides=(
            *overrides[:first],
            *(o for o in overrides[first:] if not _is_tuning_own(o, name)),
        ),
    )


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


# New spec of a tuning: the user's text with the values that were kept.
#
# It is made on the login node and not by the stage: the loader reads the files that the spec
# names, and the stage's Python may lack a YAML library.


_ALIKE = "the text means the same, with the changes"


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedSpec:
    """New spec, and how it was made."""

    path: Path
    is_whole: bool
    """True if it was dumped with all values filled in, because the text could not be edited."""
    why: str
    overrides: tuple[str, ...]
    """`--set` options of the old spec that it does not contain, and that still apply."""


Place = tuple[str | int, ...]


def write_tuned_spec(run: TuneRun, kept: Sequence[Mapping[str, Any]]) -> TunedSpec:
    """Write the spec with `kept` (`key` and `value` each) into the stage's output folder.

    Raises:
        SpecError: the spec as it was given cannot be loaded any more.
    """
    origin = read_json(run.paths.spec_origin)
    text = run.paths.given_spec.read_bytes().decode()  # keeps line ends
    changes = [(place_of(run, one["key"]), one["value"]) for one in kept]
    names = [[str(step) for step in place] for place, _ in changes]
    overrides = tuple(o for o in run.overrides if not any(sets_value(o, name) for name in names))
    wanted = _wanted(_load(origin["spec_file"], text, run.overrides), changes)
    try:
        if changes and run.stage not in read_yaml(text, "").value["stages"]:
            message = f"{run.stage} is one combination of a stage's matrix, which has one text"
            raise EditError(message)
        new = edit_text(text, changes)
        found = _load(origin["spec_file"], new, overrides)
        why = _ALIKE if _values(found) == wanted else "its values would be others"
    except (EditError, SpecError) as error:
        new, why = text, " ".join(str(error).split())
    is_whole = why != _ALIKE
    if is_whole:
        new = _dumped(wanted)
    path = run.paths.output_dir(run.stage) / SPEC_NAME
    write_text_atomic(path, new)
    return TunedSpec(
        path=path,
        is_whole=is_whole,
        why=why if is_whole else "",
        overrides=() if is_whole else overrides,
    )


def _load(file: str, text: str, overrides: Sequence[str]) -> LoadedSpec:
    """Load the spec as if `text` were in `file`: paths are relative to its folder."""
    disk = disk_files()

    def read_text(name: str) -> str:
        return text if name == file else disk.read_text(name)

    files: Files = replace(disk, read_text=read_text)
    return load_spec(file, files, overrides=overrides)


def _values(loaded: LoadedSpec) -> Any:
    return json.loads(loaded.spec.model_dump_json())


def _wanted(loaded: LoadedSpec, changes: Sequence[tuple[Place, Any]]) -> Any:
    """Return the resolved spec with the changes; missing keys have their defaults."""
    values = _values(loaded)
    for place, value in changes:
        *parents, last = place
        found = values
        for step in parents:
            if isinstance(found, dict) and found.get(step) is None:
                found[step] = {}
            found = found[step]
        found[last] = _complete(last, value)
    return values


def _complete(key: str | int, value: Any) -> Any:
    """Complete a mapping as the loader does."""
    if key != "compile" or not isinstance(value, Mapping):
        return value
    from dataclasses import asdict

    from slurm_jobs.shared.config import build_config
    from slurm_jobs.shared.configs.training_parts import CompileConfig

    return json.loads(json.dumps(asdict(build_config(CompileConfig, value))))


def _with_literal_paths(values: Any) -> Any:
    """Return the values with their paths written as a spec must name them."""
    around = Surroundings(base_dir="/", expand=literal_path)
    written, _ = resolve_marked(RunSpec, values, around)
    for stage in written["stages"].values():
        if stage["run"] in BUILTIN_STAGES:
            stage["config"], _ = resolve_marked(config_class(stage["run"]), stage["config"], around)
    return written


def _dumped(values: Any) -> str:
    """Return the text; each combination of a matrix becomes a stage with its values filled in."""
    values = _with_literal_paths(values)
    head = "# The whole spec with everything filled in: the text could not be edited in place.\n"
    for stage in values["stages"].values():
        shown = hidden_values({"environment": stage.get("environment") or {}})["environment"]
        if shown != (stage.get("environment") or {}):
            stage["environment"] = shown
            head += (
                "# Secrets of `environment` are not in it: give them with --set, or write them.\n"
            )
    matrices = [stage.pop("matrix", None) for stage in values["stages"].values()]
    if any(matrices):
        head += "# Combinations of a matrix are separate stages: no SLURM_JOBS_MATRIX_... is set.\n"
    return head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
