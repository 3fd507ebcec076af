"""Data set and training that a user selects for `packing`, and the cost of its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError, StageConfigError
from slurm_jobs.commands.data_sets.dataset_choice import CONSOLIDATE_RUN, TRAIN_RUN, named_dataset
from slurm_jobs.commands.data_sets.stage_python import (
    OnProgress,
    StagePython,
    call_entry_point,
    own_python,
    stage_python,
)
from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.commands.run_search.spec_origin import SPEC_SUFFIXES
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.formats.configs.output_references import substitute_references
from slurm_jobs.formats.dataset_folder import INFO_NAME
from slurm_jobs.run.home import anothers_folder
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import RunSpec

DEFAULT_NUM_RANKS = 8
"""Used if no training sets it."""
_ROWS_PER_RANK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingCase:
    """Data set, and the training that would read it."""

    folder: Path
    """Folder of the data set."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Config of `train`; empty without a training."""
    is_model_known: bool = False
    num_ranks: int = DEFAULT_NUM_RANKS
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
    """Return the case for a spec, a run or the folder of a data set; None is the newest run.

    `python` is the stage's if None; `command_text` turns words into a command that can be typed.

    Raises:
        InputError: there is no such thing, or it has no finished data set yet.
    """
    folder = named_dataset(text)
    if folder is not None:
        if stage is not None or overrides:
            message = f"{text} is the folder of a data set: --stage and --set are for specs"
            raise InputError(message)
        case = PackingCase(folder=folder, python=own_python(python))
        remedy = f"verify it: {command_text('verify', str(folder))}"
    else:
        file = Path(text) if text else None
        paths: RunPaths | None = None
        if file is None or file.suffix not in SPEC_SUFFIXES or not file.is_file():
            if overrides:
                message = "--set is for a spec's file; a run is shown as it was submitted"
                raise InputError(message)
            run = paths = RunPaths(find_run(text))
            spec = read_resolved_spec(run)
            name = _pick(spec, stage, str(run.run_dir))
            used = own_python(python) if python else stage_python(run, name)
        else:
            loaded = load(file, overrides=overrides)
            spec, name = loaded.spec, _pick(loaded.spec, stage, str(file))
            with suppress(InputError):  # it was not submitted yet
                paths = RunPaths(find_run(text))
            used = _python_by_spec(loaded, name, paths, python)
        remedy = (
            f"submit it: {command_text('submit', str(file))}, or name the folder of a data set "
            "instead"
        )
        if paths is not None:
            remedy = f"see how far it is: {command_text('status', str(paths.run_dir))}"
        case = _case(spec, name, paths, python=used, spec_file=file, remedy=remedy)
    if not (case.folder / INFO_NAME).is_file():
        message = f"{case.folder}: no finished data set yet ({INFO_NAME} is missing); {remedy}"
        raise InputError(message)
    return case


def _python_by_spec(
    loaded: LoadedSpec, name: str, paths: RunPaths | None, python: str | None
) -> StagePython:
    """Return the given Python, else the spec's, else that of the stage's newest job."""
    profile_python = loaded.profile.python if loaded.profile is not None else None
    named = python or loaded.spec.stages[name].python or profile_python
    if named is None and paths is not None and not anothers_folder(paths.run_dir):
        return stage_python(paths, name)
    if python is None and named is not None:
        return StagePython(program=named, whose=f"the Python of stage `{name}`")
    return own_python(named)


def _case(
    spec: RunSpec,
    name: str,
    paths: RunPaths | None,
    *,
    python: StagePython,
    spec_file: Path | None,
    remedy: str,
) -> PackingCase:
    """Return the case of the stage `name`, which trains or makes the data set.

    The folders of the newest run's stages are filled in; without a run, a message names the file of
    the spec and the remedy.
    """
    stage = spec.stages[name]
    trains = stage.run == TRAIN_RUN
    config: Mapping[str, Any] = stage.config if trains else {}
    if paths is not None:
        outputs = {other: str(paths.output_dir(other)) for other in spec.stages}
        try:
            config = substitute_references(config, outputs)
        except StageConfigError as error:  # impossible: a spec with such a reference is not loaded
            raise InputError(str(error)) from error
    folder = config.get("dataset")
    if not folder or "${" in folder:
        maker, waiting, seen = None if trains else name, [name], {name}
        while maker is None and waiting:  # the nearest preceding stage that makes a data set
            for parent in spec.stages[waiting.pop(0)].after:
                if maker is None and spec.stages[parent].run == CONSOLIDATE_RUN:
                    maker = parent
                waiting += [] if parent in seen else [parent]
                seen.add(parent)
        if maker is None:
            message = (
                f"stage `{name}`: neither config.dataset nor a stage with `run: consolidate` "
                "before it says which data set it reads; set config.dataset"
            )
            raise InputError(message)
        if paths is None:
            message = (
                f"{spec_file}: its data set is made by stage `{maker}`, and there is no run of it "
                f"in {spec.runs_dir} yet; {remedy}"
            )
            raise InputError(message)
        folder = paths.output_dir(maker)
    num_ranks = stage.resources.nodes * stage.resources.tasks_per_node
    return PackingCase(
        folder=Path(folder),
        config=config,
        is_model_known=trains,
        num_ranks=num_ranks if trains else DEFAULT_NUM_RANKS,
        python=python,
        stage=name,
    )


def _pick(spec: RunSpec, stage: str | None, where: str) -> str:
    """Return the stage that trains, or else the one that makes the data set."""
    trains = [name for name, values in spec.stages.items() if values.run == TRAIN_RUN]
    makes = [name for name, values in spec.stages.items() if values.run == CONSOLIDATE_RUN]
    if stage is not None:
        if stage in (*trains, *makes):
            return stage
        known = ", ".join((*trains, *makes)) or "none"
        message = (
            f"{where}: --stage {stage}: no stage of that name runs `{TRAIN_RUN}` or "
            f"`{CONSOLIDATE_RUN}` (those: {known})"
        )
        raise InputError(message)
    stages = trains or makes
    if not stages:
        message = f"{where}: no stage of it runs `train` or `consolidate`, so it packs nothing"
        raise InputError(message)
    if len(stages) > 1:
        message = f"{where}: name one of its stages by --stage: {', '.join(stages)}"
        raise InputError(message)
    return stages[0]


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

    `budget` has `max_tokens` and `max_images` of a row, None for the config's; `num_rows` are drawn
    of each way; without `limit_s` nothing is timed.

    Raises:
        InputError, RunFailedError, FileError: see `call_entry_point`.
    """
    ranks = num_ranks or case.num_ranks
    config = dict(case.config)
    if not case.is_model_known:
        rows = _ROWS_PER_RANK * ranks
        config = {"num_steps": 1, "num_lanes": ranks, "global_batch_size": rows}
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
    view = call_entry_point(
        "pipeline.tools.packing:run", arguments, python=case.python, on_progress=on_progress
    )
    return {"folder": str(case.folder), "stage": case.stage or None, **view}
