"""Data set and training that a user selects for `packing`, and the cost of its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_jobs.common.dataset_names import INFO_NAME
from slurm_jobs.common.errors import InputError, StageConfigError
from slurm_jobs.common.references import substitute_references
from slurm_jobs.operations.entry_point import (
    OnProgress,
    StagePython,
    call_entry_point,
    own_python,
    stage_python,
)
from slurm_jobs.operations.load import load
from slurm_jobs.operations.verify import named_dataset
from slurm_jobs.run.find import find_run
from slurm_jobs.run.home import anothers_folder
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.spec.model import RunSpec, Stage

_TRAIN, _CONSOLIDATE = "train", "consolidate"
DEFAULT_NUM_RANKS = 8
"""Used if no training sets it."""
_ROWS_PER_RANK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingCase:
    """Data set, and the training that would read it."""

    folder: Path
    """Folder of the data set."""
    config: Mapping[str, Any]
    """Config of `train`; empty without a training."""
    is_model_known: bool
    num_ranks: int
    python: StagePython
    stage: str = ""
    """Stage that trains or makes the data set; empty for a folder."""


def find_case(
    text: str | None,
    *,
    stage: str | None,
    overrides: Sequence[str],
    python: str | None,
    command_text: Callable[..., str],
) -> PackingCase:
    """Return the case for a spec, a run or the folder of a data set.

    Args:
        text: spec, run or folder as typed; None: the newest run.
        stage: training to use, if there are several.
        overrides: overrides of a spec, as typed.
        python: interpreter as typed; None: the stage's.
        command_text: turns words into a command that can be typed.

    Raises:
        InputError: there is no such thing, or it has no finished data set yet.
    """
    folder = named_dataset(text)
    if folder is not None:
        if stage is not None or overrides:
            message = f"{text} is the folder of a data set: --stage and --set are for specs"
            raise InputError(message)
        return _case_of_folder(folder, python, command_text)
    path = Path(text) if text else None
    if path is not None and path.suffix in {".yaml", ".yml"} and path.is_file():
        return _case_of_spec(path, stage, overrides, python, command_text)
    if overrides:
        message = "--set is for a spec's file; a run is shown as it was submitted"
        raise InputError(message)
    paths = RunPaths(find_run(text))
    spec = RunSpec.model_validate_json(paths.resolved_spec.read_bytes(), strict=True)
    name = _pick(spec, stage, str(paths.run_dir))
    used = own_python(python) if python else stage_python(paths, name)
    return _case(spec, name, paths, used, command_text, spec_file=None)


def _case_of_folder(
    folder: Path, python: str | None, command_text: Callable[..., str]
) -> PackingCase:
    _refuse_unfinished(folder, f"verify it: {command_text('verify', str(folder))}")
    return PackingCase(
        folder=folder,
        config={},
        is_model_known=False,
        num_ranks=DEFAULT_NUM_RANKS,
        python=own_python(python),
    )


def _case_of_spec(
    file: Path,
    stage: str | None,
    overrides: Sequence[str],
    python: str | None,
    command_text: Callable[..., str],
) -> PackingCase:
    loaded = load(file, overrides=overrides)
    name = _pick(loaded.spec, stage, str(file))
    profile_python = loaded.profile.python if loaded.profile is not None else None
    named = python or loaded.spec.stages[name].python or profile_python
    used = own_python(named)
    if python is None and named is not None:
        used = replace(used, whose=f"the Python of stage `{name}`")
    try:
        paths = RunPaths(find_run(str(file)))
    except InputError:
        paths = None
    if paths is not None and named is None and not anothers_folder(paths.run_dir):
        used = stage_python(paths, name)
    return _case(loaded.spec, name, paths, used, command_text, spec_file=file)


def _pick(spec: RunSpec, stage: str | None, where: str) -> str:
    """Return the stage that trains, or else the one that makes the data set."""
    trains = [name for name, values in spec.stages.items() if values.run == _TRAIN]
    makes = [name for name, values in spec.stages.items() if values.run == _CONSOLIDATE]
    if stage is not None:
        if stage in (*trains, *makes):
            return stage
        known = ", ".join((*trains, *makes)) or "none"
        message = (
            f"{where}: --stage {stage}: no stage of that name runs `{_TRAIN}` or `{_CONSOLIDATE}` "
            f"(those: {known})"
        )
        raise InputError(message)
    found = trains or makes
    if not found:
        message = f"{where}: no stage of it runs `train` or `consolidate`, so it packs nothing"
        raise InputError(message)
    if len(found) > 1:
        message = f"{where}: name one of its stages by --stage: {', '.join(found)}"
        raise InputError(message)
    return found[0]


def _case(
    spec: RunSpec,
    name: str,
    paths: RunPaths | None,
    python: StagePython,
    command_text: Callable[..., str],
    *,
    spec_file: Path | None,
) -> PackingCase:
    stage = spec.stages[name]
    trains = stage.run == _TRAIN
    config = _resolved(stage.config, spec, paths) if trains else {}
    folder = Path(config["dataset"]) if config.get("dataset") else None
    if folder is None or "${" in str(folder):
        folder = _made_folder(spec, name, paths, spec_file, command_text)
    _refuse_unfinished(folder, _remedy(paths, spec_file, command_text))
    resources = stage.resources
    return PackingCase(
        folder=folder,
        config=config,
        is_model_known=trains,
        num_ranks=resources.nodes * resources.tasks_per_node if trains else DEFAULT_NUM_RANKS,
        python=python,
        stage=name,
    )


def _resolved(
    config: Mapping[str, Any], spec: RunSpec, paths: RunPaths | None
) -> Mapping[str, Any]:
    """Return the config with the folders of a run's stages filled in."""
    if paths is None:
        return config
    outputs = {name: str(paths.output_dir(name)) for name in spec.stages}
    try:
        resolved: Mapping[str, Any] = substitute_references(config, outputs)
    except StageConfigError as error:  # impossible: a spec with such a reference is not loaded
        raise InputError(str(error)) from error
    return resolved


def _made_folder(
    spec: RunSpec,
    name: str,
    paths: RunPaths | None,
    spec_file: Path | None,
    command_text: Callable[..., str],
) -> Path:
    """Return where the newest run has, or will have, the data set that the stage reads."""
    maker = name if spec.stages[name].run == _CONSOLIDATE else _maker_before(spec.stages, name)
    if maker is None:
        message = (
            f"stage `{name}`: neither config.dataset nor a stage with `run: consolidate` before it "
            "says which data set it reads; set config.dataset"
        )
        raise InputError(message)
    if paths is None:
        message = (
            f"{spec_file}: its data set is made by stage `{maker}`, and there is no run of it in "
            f"{spec.runs_dir} yet; {_remedy(None, spec_file, command_text)}"
        )
        raise InputError(message)
    return paths.output_dir(maker)


def _maker_before(stages: Mapping[str, Stage], name: str) -> str | None:
    """Return the nearest preceding stage that makes a data set."""
    seen, waiting = {name}, [name]
    while waiting:
        for parent in stages[waiting.pop(0)].after:
            if stages[parent].run == _CONSOLIDATE:
                return parent
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return None


def _remedy(
    paths: RunPaths | None, spec_file: Path | None, command_text: Callable[..., str]
) -> str:
    if paths is not None:
        return f"see how far it is: {command_text('status', str(paths.run_dir))}"
    return (
        f"submit it: {command_text('submit', str(spec_file))}, or name the folder of a data set "
        "instead"
    )


def _refuse_unfinished(folder: Path, remedy: str) -> None:
    if not (folder / INFO_NAME).is_file():
        message = f"{folder}: no finished data set yet ({INFO_NAME} is missing); {remedy}"
        raise InputError(message)


def view_packing(
    case: PackingCase,
    *,
    budget: Mapping[str, int | None],
    num_ranks: int | None,
    num_rows: int,
    limit_s: float | None,
    picture: Path | None,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Return padding and cost of each way of batching, computed in the stage's Python.

    Args:
        case: See `find_case`.
        budget: `max_tokens` and `max_images` of a row, instead of the config's; None: the config's.
        num_ranks: Instead of the training's own.
        num_rows: To draw of each way.
        limit_s: Time limit of the timing; None: no timing.
        picture: A PNG to write.
        on_progress: See `call_entry_point`.

    Raises:
        InputError, RunFailedError, FileError: see `call_entry_point`.
    """
    ranks = num_ranks or case.num_ranks
    config = case.config if case.is_model_known else _plain_config(ranks)
    given = {key: value for key, value in budget.items() if value is not None}
    arguments = {
        "folder": str(case.folder),
        "config": {**config, "batching": {**config.get("batching", {}), **given}},
        "is_model_known": case.is_model_known,
        "num_ranks": ranks,
        "num_rows": num_rows,
        "limit_s": limit_s,
        "picture": None if picture is None else str(picture.absolute()),
    }
    found = call_entry_point(
        "pipeline.packing_view:run", arguments, python=case.python, on_progress=on_progress
    )
    return {"folder": str(case.folder), "stage": case.stage or None, **found}


def _plain_config(num_ranks: int) -> dict[str, Any]:
    """Return the config of an unknown training: each rank has `_ROWS_PER_RANK` samples."""
    return {
        "num_steps": 1,
        "num_lanes": num_ranks,
        "global_batch_size": _ROWS_PER_RANK * num_ranks,
    }
