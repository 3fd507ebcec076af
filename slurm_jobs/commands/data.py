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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from slurm_jobs.commands.find_run import find_run
from slurm_jobs.commands.read_spec import load
from slurm_jobs.report.report_model import DataStatistics, read_statistics
from slurm_jobs.report.samples import ShownSample, read_sample
from slurm_jobs.run.observe import anothers_folder
from slurm_jobs.run_folder.ledger import intents, latest_intents, read_ledger
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_plan_values, stages_called
from slurm_jobs.shared.errors import FileError, InputError, RunFailedError, StageConfigError
from slurm_jobs.shared.expand import substitute_references
from slurm_jobs.shared.files import ranges_text
from slurm_jobs.shared.manifest_formats import INDEX_NAME, INFO_NAME, SHARDS_DIR
from slurm_jobs.shared.process import script_command
from slurm_jobs.shared.redact import printable
from slurm_jobs.spec.model import RunSpec, Stage

# Calls of a function in `pipeline` from a command, in a process of the stage's Python.
#
# Only that Python has the packages that read data and models. The code is the `pipeline` next to
# this package, not one installed in that Python, and not the run's snapshot. So both sides of a
# call are of one version, and new commands work on old runs. The formats of the run's files must
# be readable by it in any case.
#
# `common/entry_process.py` is the other side, and defines the messages in the pipes.


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
        return StagePython(program=program, whose="as --python says")
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
            "would run as you; say which one to start: `--python python3`, or that if you trust it"
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
    unit)` how far it is. Ctrl-C, or any exception here, ends the process.

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
    with tempfile.TemporaryFile() as said, _started(python, said) as process:
        answer: dict[str, Any] = {}
        for answer in _answers(process, request, said):
            if "progress" in answer:
                words = answer["progress"]
                on_progress(words["done"], words["total"], words["unit"])
        code = process.wait()
        if "result" in answer:
            return answer["result"]
        said.seek(0, 2)
        said.seek(max(0, said.tell() - _LAST_WORDS_BYTES))
        raise _error(
            answer.get("error"), python, code, said.read().decode(errors="replace").strip()
        )


def _command(python: StagePython) -> list[str]:
    if python.program == sys.executable:
        return script_command(_SCRIPT)
    return [python.program, str(_SCRIPT)]  # of any version


@contextmanager
def _started(python: StagePython, said: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process; it has ended after the block, in any case."""
    try:
        process = subprocess.Popen(
            _command(python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )
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
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def _answers(
    process: subprocess.Popen[bytes], request: Mapping[str, Any], said: IO[bytes]
) -> Iterator[dict[str, Any]]:
    """Yield answers of the other side; all other output is added to `said`.

    The Python may be a script that prints a greeting, or no Python; a killed one leaves half a
    line.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # it has ended already, and its last output has the reason
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    for line in process.stdout:
        answer = _parsed(line)
        if answer is None:
            os.write(said.fileno(), line)
        else:
            yield answer


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Parse one answer; None for other lines."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    is_answer = isinstance(value, dict) and not _ANSWERS.isdisjoint(value)
    return value if is_answer else None


def _error(
    error: Mapping[str, str] | None, python: StagePython, code: int, last_words: str
) -> InputError | RunFailedError | FileError:
    who = f"{python.program} ({python.whose})"
    if error is None:
        how = f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"
        hint = ": no memory was left, most likely" if code == -signal.SIGKILL else ""
        last = f"; it said last:\n{last_words}" if last_words else ""
        return FileError(f"{who} ended without an answer ({how}{hint}){last}")
    if error["kind"] == "module":
        install = f"{shlex.quote(python.program)} -m pip install 'slurm-jobs[train]'"
        return InputError(
            f"{who} lacks a package: {error['message']}; install what the built-in stages need "
            f"({install}), or name a Python that has it by --python"
        )
    if error["kind"] == "stage":
        return RunFailedError(error["message"])
    return FileError(error["message"])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


# Data sets that a user selects, and their problems.


_RUN = "consolidate"
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

    `stage` picks those of one stage, or of one combination of a matrix.

    Raises:
        InputError: there is no such folder, run or stage.
    """
    folder = named_dataset(text)
    if folder is not None:
        return [_place_of_folder(folder)]
    paths = RunPaths(find_run(text))
    found = _places_in(paths)
    if not found:
        message = f"{paths.run_dir}: no stage of it runs `{_RUN}`, so it has no data set"
        raise InputError(message)
    if stage is None:
        return list(found.values())
    origins = {v["name"]: v.get("origin", "") for v in read_plan_values(paths)["stages"]}
    names = [name for name in stages_called(stage, origins) if name in found]
    if not names:
        message = f"--stage {stage}: no data set of that name (there are: {', '.join(found)})"
        raise InputError(message)
    return [found[name] for name in names]


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
        if values["run"] == _RUN
    }


def _place_of_folder(folder: Path) -> DatasetPlace:
    """Return the folder as the output of a run's stage, if it is one."""
    paths = RunPaths(folder.parent.parent)
    if paths.run_json.is_file():
        for place in _places_in(paths).values():
            if place.folder == folder:
                return place
    return DatasetPlace(folder=folder)


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
    found = call_entry_point(
        "pipeline.tools.verify:run",
        {
            "folder": str(place.folder),
            "num_threads": num_threads or num_read_threads(),
            "num_tasks": place.num_tasks,
        },
        python=python_of(place, python),
        on_progress=on_progress,
    )
    counts = {
        name: found[name] for name in ("num_shards", "num_samples", "num_bytes") if name in found
    }
    remedy, effect = _verify_remedy(place, found, command_text) if found["problems"] else ("", "")
    return Verdict(
        place=place,
        problems=tuple(found["problems"]),
        remedy=remedy,
        effect=effect,
        counts=counts,
    )


def num_read_threads() -> int:
    """Return the default number of threads that read a data set."""
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)))


def python_of(place: DatasetPlace, given: str | None) -> StagePython:
    """Return the given Python, else the one of the stage that made the data set."""
    if given is not None or place.paths is None:
        return own_python(given)
    return stage_python(place.paths, place.stage)


def _verify_remedy(
    place: DatasetPlace, found: Mapping[str, Any], command_text: Callable[..., str]
) -> tuple[str, str]:
    """Return what to do, a command if possible, and what the command does."""
    if place.paths is None:
        told = (
            "copy these files again from where the data set was made, after it was verified there; "
            "what is no file of it can be removed"
        )
        return told, ""
    run_dir = str(place.paths.run_dir)
    if found["is_unfinished"]:
        return command_text("resume", run_dir), "runs what is missing"
    if not found["slices"]:
        return (
            "remove what is no file of the data set; no stage does, and none has to run again",
            "",
        )
    again = place.stage
    if len(found["slices"]) < place.num_tasks:
        again += f":{ranges_text(found['slices'])}"
    command = command_text("resume", run_dir, "--again", again)
    return command, "writes these files again from the parts; what comes after runs again"


# Data set and training that a user selects for `packing`, and the cost of its batches.


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
        _refuse_unfinished(folder, f"verify it: {command_text('verify', str(folder))}")
        return PackingCase(
            folder=folder,
            config={},
            is_model_known=False,
            num_ranks=DEFAULT_NUM_RANKS,
            python=own_python(python),
        )
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
    _refuse_unfinished(folder, _packing_remedy(paths, spec_file, command_text))
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
            f"{spec.runs_dir} yet; {_packing_remedy(None, spec_file, command_text)}"
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


def _packing_remedy(
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
    found = call_entry_point(
        "pipeline.tools.packing:run", arguments, python=case.python, on_progress=on_progress
    )
    return {"folder": str(case.folder), "stage": case.stage or None, **found}


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


def look_at_samples(
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
    found = call_entry_point(
        "pipeline.tools.sample_audit:run",
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
    keys = found["unknown_keys"]
    if keys:
        message = (
            f"{place.folder}: no sample of key {', '.join(keys)}; a key is the number of a row of "
            f"the manifest, from 0, and rows that became none are in "
            f"{place.folder / 'rejects.jsonl'}"
        )
        raise InputError(message)
    return _read(place, found)


def _read(place: DatasetPlace, found: Mapping[str, Any]) -> SamplesFound:
    samples = tuple(read_sample(sample, found["image_token_id"]) for sample in found["samples"])
    return SamplesFound(
        place=place,
        num_samples=found["num_samples"],
        num_shards=found["num_shards"],
        num_audited=found["num_audited"],
        samples=samples,
        statistics=read_statistics(found["statistics"]),
        findings=tuple(found["findings"]),
        num_findings=found["num_findings"],
        values=found,
    )
