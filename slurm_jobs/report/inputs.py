"""Records of a run, read for its report."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from slurm_jobs.nodes.probe_records import newest_probes
from slurm_jobs.report.profile_trace import Occupancy, occupancy, read_trace
from slurm_jobs.report.values.provenance_model import (
    PACKAGES_THAT_MATTER,
    NodeFacts,
    PythonFacts,
    SubmissionFacts,
)
from slurm_jobs.run_folder.ledger import Entry, Intent, intents, open_command, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.shared import units
from slurm_jobs.shared.errors import DamagedFileError, truncated, truncated_values
from slurm_jobs.shared.files import is_amount, is_count, is_number, read_json
from slurm_jobs.shared.node_records import NodeProbe
from slurm_jobs.shared.records import (
    AttemptRecord,
    CompletionRecord,
    TaskAccounting,
    attempt_from_json,
    completion_from_json,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.shared.redact import hidden_text, hidden_values, known_secrets
from slurm_jobs.shared.timings import (
    OperatorTable,
    StepFile,
    read_operators,
    read_spans,
    read_steps,
    read_system,
    spans_path,
    steps_path,
    trace_path,
)

# Step records stored by field, the input for reports on millions of them.
#
# A file stores record after record, but a report reads one field of all records at a time, about
# sixty times. Contiguous fields are several times faster, and a field that is the same in all
# records (no device, nothing compiled) takes no memory.


UNUSED = frozenset({"epoch", "num_supervised_tokens", "num_images", "num_image_tokens"})
"""Fields that reports ignore; `report --export` has them."""


class StepColumns:
    """Columns with the interface of a structured array, as far as used; slices share memory."""

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Mapping[str, np.ndarray], length: int) -> None:
        """Store `columns`, by field, as arrays of `length`."""
        self._columns, self._length = dict(columns), length

    @classmethod
    def of(cls, records: np.ndarray) -> StepColumns:
        """Split records [num_steps] into columns, which copies them."""
        names = [name for name in records.dtype.names or () if name not in UNUSED]
        return cls({name: _column(records[name]) for name in names}, len(records))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        """Return a field by name, a record by number, or records by slice."""
        if isinstance(key, str):
            return self._columns[key]
        if isinstance(key, slice):
            length = len(range(*key.indices(self._length)))
            return StepColumns({name: c[key] for name, c in self._columns.items()}, length)
        return {name: column[key] for name, column in self._columns.items()}

    def __setitem__(self, name: str, values: np.ndarray) -> None:
        """Replace a field's values; existing slices keep the old ones."""
        self._columns[name] = values

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(self._length))

    def compress(self, chosen: np.ndarray) -> StepColumns:
        """Return the records where `chosen` [num_steps] is true."""
        columns = {name: column[chosen] for name, column in self._columns.items()}
        return StepColumns(columns, int(np.count_nonzero(chosen)))

    def copy(self) -> StepColumns:
        """Return a copy whose fields can be replaced; the values are shared."""
        return StepColumns({n: c.view() for n, c in self._columns.items()}, self._length)


def _column(values: np.ndarray) -> np.ndarray:
    """Return a contiguous copy; one value if all are equal, NaN too."""
    if len(values):
        first = values[0]
        same = np.isnan(values) if np.isnan(first) else values == first
        if same.all():
            return np.broadcast_to(np.array(first), values.shape)
    return np.ascontiguousarray(values)


# Reader of a run's provenance and nodes that hides what looks like a secret.
#
# Missing records of older versions are no problem; unreadable ones are.


Record = TypeVar("Record")
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


def read_secrets(paths: RunPaths, spec: Mapping[str, Any]) -> frozenset[str]:
    """Return values of the variables of spec and profile whose names look like secrets."""
    environments = [spec.get("environment")]
    environments += [stage.get("environment") for stage in spec["stages"].values()]
    with suppress(*_UNREADABLE):  # a run without this file has no profile either
        environments.append(read_json(paths.spec_origin)["profile"].get("environment"))
    return known_secrets(environments)


def shown_spec(spec: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, Any]:
    """Return the spec for a page; a stage's name does not make its content a secret."""
    stages = {
        name: {**hidden_values(stage, secrets), "after": stage.get("after")}
        for name, stage in spec["stages"].items()
    }
    return {**hidden_values({**spec, "stages": None}, secrets), "stages": stages}


def read_submissions(paths: RunPaths, problems: list[str]) -> tuple[SubmissionFacts, ...]:
    """Return the provenance of each submit and resume, oldest first."""
    files = sorted(paths.provenance_dir.glob("[0-9]*.json"))
    return tuple(facts for _, facts in _read_provenance(files, _submission, problems))


def read_nodes(
    paths: RunPaths, attempts: Iterable[AttemptRecord], problems: list[str]
) -> tuple[NodeFacts, ...]:
    """Return the recorded nodes of a stage's attempts; most array tasks share a few nodes."""
    files = (
        paths.node_facts(a.stage, a.slice_index, a.attempt, node_rank)
        for a in attempts
        for node_rank in range(len(a.node_names))
    )
    return tuple(dict.fromkeys(facts for _, facts in _read_provenance(files, _node, problems)))


def read_pythons(paths: RunPaths, problems: list[str]) -> Mapping[str, PythonFacts]:
    """Return the Pythons in which ranks ran, by fingerprint."""
    files = sorted(paths.pythons_dir.glob("*.json"))
    return {path.stem: facts for path, facts in _read_provenance(files, _python, problems)}


def _read_provenance(
    files: Iterable[Path], make: Callable[[Mapping[str, Any]], Record], problems: list[str]
) -> Iterator[tuple[Path, Record]]:
    return _read_each(
        files, lambda v: make(truncated_values(v)), problems, "provenance", is_optional=True
    )


def _read_each(
    files: Iterable[Path],
    make: Callable[[Any], Record],
    problems: list[str],
    what: str,
    *,
    is_optional: bool = False,
) -> Iterator[tuple[Path, Record]]:
    """Yield the records that can be read; the others become problems.

    Missing files are no problem if `is_optional`.
    """
    for path in files:
        try:
            record = make(read_json(path))
        except _UNREADABLE as error:
            if not (is_optional and isinstance(error, FileNotFoundError)):
                problems.append(f"{path}: not read as {what}: {error}")
        else:
            yield path, record


def _submission(values: Mapping[str, Any]) -> SubmissionFacts:
    git, slurm = values["git"], values["slurm"] or {"version": ""}
    return SubmissionFacts(
        number=values["number"],
        recorded_unix_s=values["recorded_unix_s"],
        command=tuple(hidden_values(values["command"])),
        host=values["host"]["name"],
        slurm_jobs_version=values["slurm_jobs_version"],
        slurm_version=slurm["version"],
        commit=git["commit"],
        branch=git["branch"],
        remotes=git["remotes"],
        is_dirty=git["is_dirty"],
        num_changed=git["num_changed"],
        num_untracked=git["num_untracked"],
        diff_bytes=git["diff_bytes"],
        diff_is_cut=git["diff_is_cut"],
        git_problems=tuple(git["problems"]),
        python=_python(values["python"]),
    )


def _python(values: Mapping[str, Any]) -> PythonFacts:
    packages = values["packages"]
    return PythonFacts(
        executable=values["executable"],
        version=values["version"],
        packages={name: packages[name] for name in PACKAGES_THAT_MATTER if name in packages},
    )


def _node(values: Mapping[str, Any]) -> NodeFacts:
    host, gpus = values["host"], values["gpus"]
    return NodeFacts(
        node_name=values["node_name"],
        cpu=values["cpu"]["model"] or host["machine"],
        num_cores=values["cpu"]["num_cores"],
        memory_bytes=values["memory_bytes"],
        gpus=tuple(gpu["name"] for gpu in gpus),
        drivers=tuple(dict.fromkeys(gpu["driver_version"] for gpu in gpus)),
        gpu_problem=values["gpu_problem"],
        system=", ".join(filter(None, (host["distribution"], host["kernel"]))),
        modules=tuple(values["modules"]),
        python=values["python"],
        host_name=host["name"],
    )


# Records of a run as plain values, as a report reads them.


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTiming:
    """Timing records of one rank in one attempt."""

    slice_index: int
    attempt: int
    rank: int
    steps: StepFile | None
    spans: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReadings:
    """Load of one node during one attempt, as its sampler read it."""

    slice_index: int
    attempt: int
    node: str
    metadata: Mapping[str, Any]
    """Header of the file: `cores`, `gpus`, `disks` and more."""
    readings: np.ndarray
    """Structured, fields as in `slurm_jobs.shared.timings`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTable:
    """Summary of one rank's profile of some steps."""

    slice_index: int
    attempt: int
    rank: int
    table: OperatorTable
    device: Occupancy | None = None
    """Activity of its device; None without one, and for all but the first rank of the newest
    profiled attempt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInputs:
    """All records of one stage, sorted by slice and attempt."""

    name: str
    run: str
    after: Mapping[str, str]
    """Kind of dependency by parent."""
    num_slices: int
    resources: Mapping[str, Any]
    attempts: tuple[AttemptRecord, ...]
    completions: tuple[CompletionRecord, ...]
    timings: tuple[RankTiming, ...]
    nodes: tuple[NodeFacts, ...] = ()
    """Records of the nodes that attempts ran on, each once."""
    readings: tuple[NodeReadings, ...] = ()
    """By slice, attempt and node."""
    profiles: tuple[ProfileTable, ...] = ()
    """By slice, attempt and rank; of the steps in `profile.steps`."""
    is_former: bool = False
    """True for a stage of an earlier plan that the spec no longer has."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Config in the spec, including secrets: for decisions, never shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportInputs:
    """Input of a report."""

    run: Mapping[str, Any]
    """`run.json`."""
    spec: Mapping[str, Any]
    """`spec/resolved.json`, without values that look like secrets."""
    stages: tuple[StageInputs, ...]
    """Parents before their children."""
    intents: tuple[Intent, ...] | None
    """The jobs that were submitted, oldest first; None if the ledger could not be read."""
    accounting: tuple[TaskAccounting, ...]
    """Every start in the scheduler's accounting, with its use of resources."""
    answer: Answer | None
    """Answer that `status` uses; None if the scheduler was not queried."""
    is_submitting: bool
    """True if a command is submitting for the run."""
    submissions: tuple[SubmissionFacts, ...]
    """Provenance of each submit and resume, oldest first."""
    pythons: Mapping[str, PythonFacts]
    """Pythons in which ranks ran, by fingerprint."""
    read_unix_s: float
    """Time of the reading, seconds since 1970."""
    problems: tuple[str, ...]
    """Unreadable files, with reasons."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """Cluster profile of the run, without values that look like secrets."""
    probes: tuple[NodeProbe, ...] = ()
    """Newest probe of every node that was probed from a run in the same folder, by node."""
    price: Mapping[str, Any] | None = None
    """`gpu_hour`, `cpu_hour` and `currency` of the profile; None if it has none."""


# Results of a stage, without invalid numbers.


PREPROCESS_RUN = "preprocess"
"""`run:` of the built-in preprocessing, whose results have known types."""


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(is_count, value.values()))


def _are_lengths(value: Any) -> bool:
    return _are_counts(value) and all(str(length).isdecimal() for length in value)


def _is_image_price(value: Any) -> bool:
    """Accept None if no image was stored."""
    if not value:
        return True
    return (
        isinstance(value, Mapping)
        and is_count(value.get("num_measured"))
        and value["num_measured"] > 0
        and all(is_amount(value.get(name)) for name in ("bytes", "decode_ms"))
        and "psnr_db" in value
        and (value["psnr_db"] is None or is_number(value["psnr_db"]))
    )


_OF_PREPROCESSING: Mapping[str, Callable[[Any], bool]] = {
    "rejects_by_reason": _are_counts,
    "row_notes": _are_counts,
    "num_tokens_histogram": _are_lengths,
    "stored_image": _is_image_price,
}
"""Results of the built-in stage besides plain numbers."""


def sound_result(result: Mapping[str, Any], *, is_preprocessing: bool) -> dict[str, Any]:
    """Return the valid values; for a user's stage, everything except invalid numbers."""
    known = without_odd_numbers(result)
    if not is_preprocessing:
        return known
    return {name: value for name, value in known.items() if _is_written(name, value)}


def without_odd_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Remove NaN, infinity and numbers beyond all counts, at any depth."""
    normal = {name: value for name, value in values.items() if not _is_odd(value)}
    return {
        name: without_odd_numbers(value) if isinstance(value, Mapping) else value
        for name, value in normal.items()
    }


def _is_odd(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not is_number(value)


def _is_written(name: str, value: Any) -> bool:
    """Check for a value that preprocessing writes."""
    if name in _OF_PREPROCESSING:
        return _OF_PREPROCESSING[name](value)
    return is_amount(value) if name.endswith("_s") or name.startswith("num_") else True


# Reader of the timing records of a stage's attempts: steps, spans, and node readings.


_TIMING_FOLDER = re.compile(r"s(\d+)\.a(\d+)")
_NODE_FILE = re.compile(r"node-\d+\.system")
_MOST_TRACE_BYTES = 8 << 20
"""Compressed size; reading it takes hundreds of MiB of memory."""
_MOST_TRACE_TEXT_BYTES = 256 << 20
"""Size without compression; traces shrink to a twentieth."""
_PROFILE_FILE = re.compile(r"rank-(\d+)\.operators\.json")
_TIMING_FILE = re.compile(r"rank-(\d+)\.(steps|spans\.jsonl)")


def list_files(folder: Path) -> list[Path]:
    """Return the files by name; none if the folder does not exist."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _attempt_folders(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield the folders with timing, each with its slice and attempt."""
    for path in list_files(folder):
        if match := _TIMING_FOLDER.fullmatch(path.name):
            yield path, int(match[1]), int(match[2])


def read_timings(folder: Path, problems: list[str], *, whole: bool) -> tuple[RankTiming, ...]:
    """Return records by slice, attempt and rank; `whole` keeps all fields of the files."""
    timings: list[RankTiming] = []
    for attempt_dir, slice_index, attempt in _attempt_folders(folder):
        names = [_TIMING_FILE.fullmatch(path.name) for path in list_files(attempt_dir)]
        ranks = sorted({int(name[1]) for name in names if name})
        timings.extend(
            _read_rank(attempt_dir, slice_index, attempt, rank, problems, whole=whole)
            for rank in ranks
        )
    return tuple(timings)


def _read_rank(
    folder: Path,
    slice_index: int,
    attempt: int,
    rank: int,
    problems: list[str],
    *,
    whole: bool,
) -> RankTiming:
    steps: StepFile | None = None
    spans: list[dict[str, Any]] = []
    steps_file = steps_path(folder, rank)
    spans_file = spans_path(folder, rank)
    try:
        with suppress(FileNotFoundError):
            steps = read_steps(steps_file)
        if steps is not None:
            if not whole:
                columns = StepColumns.of(steps.steps)
                steps = replace(steps, steps=cast("np.ndarray", columns))  # only the used fields
            if steps.num_damaged:
                records = units.number_of("step record", steps.num_damaged)
                problems.append(
                    f"{folder.name}, rank {rank}: {records} left out, from the first damaged one on"
                )
        with suppress(FileNotFoundError):
            spans, num_damaged = read_spans(spans_file)
            if num_damaged:
                lines = units.number_of("damaged line", num_damaged)
                problems.append(f"{folder.name}, rank {rank}: {lines} of spans left out")
    except (OSError, ValueError) as error:
        problems.append(f"{folder.name}, rank {rank}: timing not read: {error}")
    return RankTiming(
        slice_index=slice_index, attempt=attempt, rank=rank, steps=steps, spans=tuple(spans)
    )


def read_readings(folder: Path, problems: list[str]) -> tuple[NodeReadings, ...]:
    """Return readings by slice, attempt and node; unreadable ones become problems."""
    readings = []
    for attempt_dir, slice_index, attempt in _attempt_folders(folder):
        for path in list_files(attempt_dir):
            if _NODE_FILE.fullmatch(path.name) is None:
                continue
            try:
                file = read_system(path)
            except (OSError, ValueError) as error:
                problems.append(f"{attempt_dir.name}: readings of a node not read: {error}")
                continue
            if file.num_damaged:
                lost = units.number_of("reading", file.num_damaged)
                problems.append(f"{attempt_dir.name}, {path.name}: {lost} left out as damaged")
            readings.append(
                NodeReadings(
                    slice_index=slice_index,
                    attempt=attempt,
                    node=str(file.metadata.get("node_name") or path.stem),
                    metadata=file.metadata,
                    readings=file.readings,
                )
            )
    return tuple(readings)


def read_profiles(folder: Path, problems: list[str]) -> tuple[ProfileTable, ...]:
    """Return profiles by slice, attempt and rank; unreadable ones become problems."""
    profiles = []
    for attempt_dir, slice_index, attempt in _attempt_folders(folder):
        for path in list_files(attempt_dir):
            match = _PROFILE_FILE.fullmatch(path.name)
            if match is None:
                continue
            try:
                table = read_operators(path)
            except (OSError, ValueError, TypeError, KeyError) as error:
                problems.append(f"{attempt_dir.name}, rank {match[1]}: profile not read: {error}")
                continue
            rank = int(match[1])
            profiles.append(
                ProfileTable(slice_index=slice_index, attempt=attempt, rank=rank, table=table)
            )
    return tuple(_with_device(profile, folder, profiles, problems) for profile in profiles)


def _with_device(
    profile: ProfileTable, folder: Path, profiles: Sequence[ProfileTable], problems: list[str]
) -> ProfileTable:
    """Add the device from the trace of one rank: traces may be large, and ranks do similar work."""
    alike = [(p.attempt, -p.rank) for p in profiles if p.slice_index == profile.slice_index]
    if (profile.attempt, -profile.rank) != max(alike):
        return profile
    path = trace_path(folder / f"s{profile.slice_index:05d}.a{profile.attempt:04d}", profile.rank)
    try:
        if path.stat().st_size > _MOST_TRACE_BYTES:
            problems.append(f"{path.name}: over 8 MiB, not read; `slurm-jobs profile` reads it")
            return profile
        trace = read_trace(path, most_bytes=_MOST_TRACE_TEXT_BYTES)
        return replace(profile, device=occupancy(trace)) if trace.has_device else profile
    except FileNotFoundError:  # the trace has been removed: the table of operators exists
        return profile
    except (OSError, DamagedFileError, ValueError) as error:
        problems.append(f"rank {profile.rank}: trace not read: {error}")
        return profile


# Reader of a run's records; no decisions.
#
# A file that cannot be read becomes a problem that the report names, because reports on broken
# runs are needed most.


def read_inputs(
    paths: RunPaths,
    accounting: Sequence[TaskAccounting],
    answer: Answer | None = None,
    *,
    whole: bool = False,
) -> ReportInputs:
    """Read the records of the run, after its scheduler was queried.

    Args:
        paths: paths of the run.
        accounting: rows of the scheduler's accounting.
        answer: current answer of the scheduler, as for `status`.
        whole: leave the step records as their files have them, with fields that no report uses.

    Raises:
        FileNotFoundError: `paths` is not a run (it lacks `run.json` or the resolved spec).
    """
    problems: list[str] = []
    spec = read_resolved_values(paths)
    if paths.run_json.exists():
        read_meta(paths)  # refuses values that no submit writes
    secrets = read_secrets(paths, spec)
    former = _former_stages(paths, spec["stages"], problems)
    listed = {**spec["stages"], **former}
    stages = tuple(
        replace(
            _read_stage(paths, name, listed[name], secrets, problems, whole=whole),
            is_former=name in former,
        )
        for name in parents_first(listed)
    )
    ledger = _read_ledger(paths, problems)
    profile: Mapping[str, Any] = {}
    with suppress(*_UNREADABLE):  # runs of older versions have none
        stored = read_json(paths.spec_origin)["profile"]
        profile = stored if isinstance(stored, Mapping) else {}
    price = profile.get("price")
    return ReportInputs(
        run=read_json(paths.run_json),
        spec=shown_spec(spec, secrets),
        stages=stages,
        intents=tuple(intents(ledger)) if ledger is not None else None,
        accounting=tuple(accounting),
        answer=answer if answer is not None and answer.asked_unix_s else None,
        is_submitting=ledger is not None and open_command(ledger) is not None,
        submissions=read_submissions(paths, problems),
        pythons=read_pythons(paths, problems),
        probes=newest_probes(paths.run_dir.parent, problems),
        read_unix_s=time.time(),
        problems=tuple(map(truncated, problems)),
        profile=hidden_values(profile, secrets),
        price=price if isinstance(price, Mapping) else None,
    )


def parents_first(stages: Mapping[str, Any]) -> list[str]:
    """Return the stages with parents first; otherwise in the order of the spec.

    A parent that has been removed is ignored.
    """
    ordered: list[str] = []
    while len(ordered) < len(stages):
        ready = [
            name
            for name in stages
            if name not in ordered
            and all(p in ordered or p not in stages for p in stages[name].get("after") or ())
        ]
        if not ready:
            message = (
                "the stages in the run's plans wait for each other, so a file in plans/ is "
                "damaged: restore it from a backup or snapshot of its file system"
            )
            raise DamagedFileError(message)
        ordered.extend(ready)
    return ordered


def _former_stages(
    paths: RunPaths, current: Mapping[str, Any], problems: list[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the stages that only earlier plans have, each from the newest of those."""
    plans = _read_each(sorted(paths.plans_dir.glob("[0-9]*.json")), _planned, problems, "a plan")
    return {
        name: stage
        for _, planned in plans
        for name, stage in planned.items()
        if name not in current
    }


def _planned(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Convert the stages of a plan to the form of the resolved spec."""
    return {
        stage["name"]: {
            "run": stage["run"],
            "after": stage["after"],
            "array": {"num_slices": stage["num_slices"]} if stage["is_array"] else None,
            "resources": stage.get("resources"),
        }
        for stage in plan["stages"]
    }


def _read_stage(
    paths: RunPaths,
    name: str,
    stage: Mapping[str, Any],
    secrets: frozenset[str],
    problems: list[str],
    *,
    whole: bool,
) -> StageInputs:
    array = stage.get("array")
    files = [f for f in list_files(paths.attempts_dir(name)) if parse_attempt_name(f.name)]
    records = _read_each(files, attempt_from_json, problems, "an attempt record")
    attempts = sorted((a for _, a in records), key=lambda a: (a.slice_index, a.attempt))
    completions = _read_completions(
        paths.completions_dir(name),
        secrets,
        problems,
        is_preprocessing=stage.get("run") == PREPROCESS_RUN,
    )
    return StageInputs(
        name=name,
        run=stage.get("run") or "shell",
        after=stage.get("after") or {},
        num_slices=int(array["num_slices"]) if array else 1,
        resources=stage.get("resources") or {},
        attempts=tuple(attempts),
        completions=completions,
        timings=read_timings(paths.timing_stage_dir(name), problems, whole=whole),
        nodes=read_nodes(paths, attempts, problems),
        profiles=read_profiles(paths.timing_stage_dir(name), problems),
        readings=read_readings(paths.timing_stage_dir(name), problems),
        config=stage.get("config") or {},
    )


def _read_ledger(paths: RunPaths, problems: list[str]) -> list[Entry] | None:
    try:
        entries = read_ledger(paths.ledger_dir)
        intents(entries)
    except _UNREADABLE as error:
        problems.append(f"{paths.ledger_dir}: not read as a ledger: {error}")
        return None
    return entries


def _read_completions(
    folder: Path, secrets: frozenset[str], problems: list[str], *, is_preprocessing: bool
) -> tuple[CompletionRecord, ...]:
    """Return the records without invalid results, and without secrets in their reasons."""
    completions = []
    files = [path for path in list_files(folder) if parse_completion_name(path.name)]
    for path, record in _read_each(files, completion_from_json, problems, "a completion record"):
        result: Any = record.result
        if not isinstance(result, Mapping):  # a user's stage may return anything
            kind = type(result).__name__
            problems.append(f"{path}: its result is not a mapping ({kind}), and is left out")
            result = {}
        valid = sound_result(result, is_preprocessing=is_preprocessing)
        if record.result_note is not None:
            problems.append(f"{path}: {hidden_text(record.result_note, secrets)}")
        if valid != result:
            problems.append(f"{path}: its result has values that are damaged; they are left out")
        reason = hidden_text(record.full_reason, secrets)
        valid = truncated_values(valid)
        completions.append(replace(record, result=valid, reason=reason, last_line=None))
    return tuple(sorted(completions, key=lambda c: (c.slice_index, c.attempt)))
