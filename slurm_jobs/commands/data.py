"""Functions behind packing, samples and verify, which run in a stage's Python."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from slurm_jobs.commands.find_run import find_run
from slurm_jobs.commands.read_spec import load
from slurm_jobs.commands.spec_origin import SPEC_SUFFIXES
from slurm_jobs.report.samples.sample_values import ShownSample, read_sample
from slurm_jobs.report.values.data_statistics import DataStatistics, read_statistics
from slurm_jobs.run.observe import anothers_folder
from slurm_jobs.run_folder.ledger import intents, latest_intents, read_ledger
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec
from slurm_jobs.run_folder.run_records import read_plan_values, stages_called
from slurm_jobs.shared.configs.output_references import substitute_references
from slurm_jobs.shared.dataset_folder import INDEX_NAME, INFO_NAME, SHARDS_DIR
from slurm_jobs.shared.errors import FileError, InputError, RunFailedError, StageConfigError
from slurm_jobs.shared.index_ranges import ranges_text
from slurm_jobs.shared.processes.python_commands import script_command
from slurm_jobs.shared.written_values import printable
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import RunSpec

# Calls of a function in `pipeline` from a command, in a process of the stage's Python.
#
# Only that Python has the packages that read data and models. The code is the `pipeline` next to
# this package, not one installed in that Python, and not the run's snapshot. So both sides of a
# call are of one version, and new commands work on old runs. The formats of the run's files must
# be readable by it in any case.
#
# `shared/entry_process.py` is the other side, and defines the messages in the pipes.


_PACKAGE_DIR = Path(__file__).resolve().parent.parent
_SCRIPT = _PACKAGE_DIR / "shared" / "entry_process.py"
_LAST_WORDS_BYTES = 2000
_ANSWERS = frozenset({"progress", "result", "error"})
_GRACE_S = 5.0
"""Time for an orderly exit, before SIGKILL."""

OnProgress = Callable[[int, int, str], None]
"""Arguments: done, total, and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePython:
    """Python interpreter, and where it comes from."""

    program: str
    whose: str
    """Text such as ``the Python of stage `consolidate` `` for messages."""


def own_python(program: str | None = None) -> StagePython:
    """Return the Python that a user named, or the current one."""
    if program is not None:
        return StagePython(program=program, whose="from --python")
    return StagePython(program=sys.executable, whose="the Python of slurm-jobs itself")


def stage_python(paths: RunPaths, stage: str) -> StagePython:
    """Return the Python of a stage's newest job; ours if there was no job.

    Raises:
        InputError: the run is another user's, whose program must not be started unasked.
    """
    newest = latest_intents(intents(read_ledger(paths.ledger_dir)), stage)
    if not newest:
        return own_python()
    order = read_order(paths.job_json(max(newest.values(), key=lambda i: i.number).token))
    owner = "" if order.python == sys.executable else anothers_folder(paths.run_dir)
    if owner:
        message = (
            f"{paths.run_dir} is {owner}, and names the Python {printable(order.python)}, which "
            "would run as you; choose one with --python: `python3`, or that one if you trust it"
        )
        raise InputError(message)
    return StagePython(program=order.python, whose=f"the Python of stage `{stage}`")


def call_entry_point(
    entry_point: str,
    arguments: Mapping[str, Any],
    *,
    python: StagePython,
    on_progress: OnProgress = lambda _done, _total, _unit: None,
) -> Any:
    """Return the result of `entry_point` (`pipeline.tools.verify:run`); all values are JSON.

    The function is called as `function(arguments, report)`, and says by `report(done, total,
    unit)` how far it is. Ctrl-C, or any exception here, ends the process. The Python may
    print a greeting, or not be Python at all; a killed one leaves half a line.

    Raises:
        InputError: the Python is not there, or lacks a package.
        RunFailedError: the function refused, with a message for the user.
        FileError: a file could not be read, or the process ended without an answer.
    """
    request = {
        "packages": {
            "slurm_jobs": str(_PACKAGE_DIR),
            "pipeline": str(_PACKAGE_DIR.parent / "pipeline"),
        },
        "entry_point": entry_point,
        "arguments": arguments,
    }
    answer: dict[str, Any] = {}
    with tempfile.TemporaryFile() as log, _started(python, log) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already, and its last output has the reason
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            value = None
            with suppress(ValueError):
                value = json.loads(line)
            if not isinstance(value, dict) or _ANSWERS.isdisjoint(value):
                os.write(log.fileno(), line)
                continue
            answer = value
            if "progress" in answer:
                progress = answer["progress"]
                on_progress(progress["done"], progress["total"], progress["unit"])
        code = process.wait()
        if "result" in answer:
            return answer["result"]
        log.seek(0, 2)
        log.seek(max(0, log.tell() - _LAST_WORDS_BYTES))
        last_words = log.read().decode(errors="replace").strip()
    raise _error(answer.get("error"), python, code, last_words)


@contextmanager
def _started(python: StagePython, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process; it has ended after the block, in any case."""
    command = [python.program, str(_SCRIPT)]  # of any version
    if python.program == sys.executable:
        command = script_command(_SCRIPT)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
    except OSError as error:
        message = (
            f"{python.program}: {error.strerror} ({python.whose}); name one that this machine has "
            "by --python"
        )
        raise InputError(message) from error
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in filter(None, (process.stdin, process.stdout)):
            with suppress(BrokenPipeError):
                stream.close()


def _error(
    error: Mapping[str, str] | None, python: StagePython, code: int, last_words: str
) -> InputError | RunFailedError | FileError:
    who = f"{python.program} ({python.whose})"
    if error is None:
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        with suppress(ValueError):  # of no signal with a name
            how = f"signal {signal.Signals(-code).name}"
        hint = ": probably out of memory" if code == -signal.SIGKILL else ""
        last = f"; its last output:\n{last_words}" if last_words else ""
        return FileError(f"{who} ended without an answer ({how}{hint}){last}")
    if error["kind"] == "module":
        install = f"{shlex.quote(python.program)} -m pip install 'slurm-jobs[train]'"
        return InputError(
            f"{who} lacks a package: {error['message']}; install what the built-in stages need "
            f"({install}), or name a Python that has it by --python"
        )
    return (RunFailedError if error["kind"] == "stage" else FileError)(error["message"])


# Data sets that a user selects, and their problems.


_TRAIN, _CONSOLIDATE = "train", "consolidate"
_MAX_THREADS = 16
"""More threads do not speed up a file server, and most login nodes have no more cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetPlace:
    """Data set, and the stage that made it."""

    folder: Path
    paths: RunPaths | None = None
    """Run that made it; None for a folder elsewhere."""
    stage: str = ""
    """Stage of that run."""
    num_tasks: int = 1
    """Number of array tasks of that stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Result of a verification."""

    place: DatasetPlace
    problems: tuple[Mapping[str, Any], ...]
    """Each with `file`, `message`, and where they apply `shard` and `key`."""
    remedy: str
    """Command to type, or other advice; empty if nothing is wrong."""
    counts: Mapping[str, int]
    """`num_shards`, `num_samples`, `num_bytes`; empty if `dataset.json` cannot be read."""
    effect: str = ""
    """Effect of the command."""


def find_datasets(text: str | None, stage: str | None = None) -> list[DatasetPlace]:
    """Return the data sets of a run, or the one in a folder; see `find_run` for names of runs.

    A folder may be the output of a run's stage. `stage` picks those of one stage, or of one
    combination of a matrix.

    Raises:
        InputError: there is no such folder, run or stage.
    """
    folder = named_dataset(text)
    if folder is not None:
        paths = RunPaths(folder.parent.parent)
        places = _places_in(paths).values() if paths.run_json.is_file() else ()
        return [place for place in places if place.folder == folder] or [
            DatasetPlace(folder=folder)
        ]
    paths = RunPaths(find_run(text))
    by_stage = _places_in(paths)
    if not by_stage:
        message = f"{paths.run_dir}: no stage of it runs `{_CONSOLIDATE}`, so it has no data set"
        raise InputError(message)
    if stage is None:
        return list(by_stage.values())
    origins = {v["name"]: v.get("origin", "") for v in read_plan_values(paths)["stages"]}
    names = [name for name in stages_called(stage, origins) if name in by_stage]
    if not names:
        message = f"--stage {stage}: no data set of that name (there are: {', '.join(by_stage)})"
        raise InputError(message)
    return [by_stage[name] for name in names]


def named_dataset(text: str | None) -> Path | None:
    """Return the folder of a data set that a user named; None if the text means a run.

    It contains any file of a data set: `dataset.json` may be what is missing.
    """
    path = Path(text) if text else None
    if path is None or RunPaths(path).run_json.is_file():
        return None
    is_one = any((path / name).exists() for name in (INFO_NAME, INDEX_NAME, SHARDS_DIR))
    return path.absolute() if is_one else None


def _places_in(paths: RunPaths) -> dict[str, DatasetPlace]:
    """Return the data sets of a run by stage."""
    return {
        values["name"]: DatasetPlace(
            folder=paths.output_dir(values["name"]),
            paths=paths,
            stage=values["name"],
            num_tasks=values["num_slices"],
        )
        for values in read_plan_values(paths)["stages"]
        if values["run"] == _CONSOLIDATE
    }


def verify(
    place: DatasetPlace,
    *,
    python: str | None,
    num_threads: int | None,
    command_text: Callable[..., str],
    on_progress: OnProgress,
) -> Verdict:
    """Compare a data set with its index and checksums, in the Python of the stage that made it.

    Raises:
        InputError, FileError: see `call_entry_point`.
    """
    result = call_entry_point(
        "pipeline.tools.verify:run",
        {
            "folder": str(place.folder),
            "num_threads": num_threads or num_read_threads(),
            "num_tasks": place.num_tasks,
        },
        python=python_of(place, python),
        on_progress=on_progress,
    )
    remedy, effect = "", ""
    if result["problems"] and place.paths is None:
        remedy = (
            "verify the data set where it was made, and copy these files again; remove those that "
            "do not belong to it"
        )
    elif place.paths is not None and result["problems"] and result["is_unfinished"]:
        remedy = command_text("resume", str(place.paths.run_dir))
        effect = "runs what is missing"
    elif result["problems"] and not result["slices"]:
        remedy = "remove the files that do not belong to the data set; no stage has to run again"
    elif place.paths is not None and result["problems"]:
        again = place.stage
        if len(result["slices"]) < place.num_tasks:
            again += f":{ranges_text(result['slices'])}"
        remedy = command_text("resume", str(place.paths.run_dir), "--again", again)
        effect = "writes these files again from the parts; what comes after runs again"
    names = ("num_shards", "num_samples", "num_bytes")
    return Verdict(
        place=place,
        problems=tuple(result["problems"]),
        remedy=remedy,
        effect=effect,
        counts={name: result[name] for name in names if name in result},
    )


def num_read_threads() -> int:
    """Return the default number of threads that read a data set."""
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)))


def python_of(place: DatasetPlace, given: str | None) -> StagePython:
    """Return the given Python, else the one of the stage that made the data set."""
    if given is not None or place.paths is None:
        return own_python(given)
    return stage_python(place.paths, place.stage)


# Data set and training that a user selects for `packing`, and the cost of its batches.


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
    trains = stage.run == _TRAIN
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
                if maker is None and spec.stages[parent].run == _CONSOLIDATE:
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


# Samples of a data set, its composition, and problems of its labels and images.


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which samples to show, and how many to audit."""

    num: int
    """Number of samples from the start of the index, which is in random order."""
    keys: tuple[int, ...] = ()
    """Keys of samples to show instead."""
    random_seed: int | None = None
    """Seed to draw the `num` samples."""
    limit: int | None = None
    """Number of samples to audit, from the first; None for all."""
    with_pictures: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesFound:
    """Samples and audit of a data set."""

    place: DatasetPlace
    num_samples: int
    num_shards: int
    num_audited: int
    samples: tuple[ShownSample, ...]
    statistics: DataStatistics | None
    findings: tuple[Mapping[str, str], ...]
    """Each with `kind`, `message`, `key`, `shard`; only the first if there are very many."""
    num_findings: Mapping[str, int]
    """Number of all findings by kind."""
    values: Mapping[str, Any]
    """Answer as JSON values."""


def inspect_samples(
    place: DatasetPlace,
    wanted: Wanted,
    *,
    python: str | None,
    num_threads: int | None,
    on_progress: OnProgress,
) -> SamplesFound:
    """Read, decode and audit, in the Python of the stage that made the data set.

    Raises:
        InputError: the data set has no sample with a key.
        InputError, RunFailedError, FileError: see `call_entry_point`.
    """
    values = call_entry_point(
        "pipeline.tools.show_samples:run",
        {
            "folder": str(place.folder),
            "num": wanted.num,
            "keys": list(wanted.keys),
            "random_seed": wanted.random_seed,
            "limit": wanted.limit,
            "with_pictures": wanted.with_pictures,
            "num_threads": num_threads or num_read_threads(),
        },
        python=python_of(place, python),
        on_progress=on_progress,
    )
    keys = values["unknown_keys"]
    if keys:
        message = (
            f"{place.folder}: no sample of key {', '.join(keys)}; a key is the number of a row of "
            f"the manifest, from 0, and rows that became none are in "
            f"{place.folder / 'rejects.jsonl'}"
        )
        raise InputError(message)
    return SamplesFound(
        place=place,
        num_samples=values["num_samples"],
        num_shards=values["num_shards"],
        num_audited=values["num_audited"],
        samples=tuple(read_sample(s, values["image_token_id"]) for s in values["samples"]),
        statistics=read_statistics(values["statistics"]),
        findings=tuple(values["findings"]),
        num_findings=values["num_findings"],
        values=values,
    )
