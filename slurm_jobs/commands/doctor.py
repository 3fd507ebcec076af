"""Checks of a site that prevent wasted hours: query the login node and nodes, and judge them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import signal
import statistics
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TypeVar

from slurm_jobs.commands.cancel import cancel
from slurm_jobs.commands.probe import OneStage, a_task_a_node, fits, num_named_nodes, one_stage_spec
from slurm_jobs.commands.read_spec import disk_files, load
from slurm_jobs.commands.runs_dir import default_runs_dir
from slurm_jobs.commands.submit import submit
from slurm_jobs.nodes.doctor.check import Check
from slurm_jobs.nodes.doctor.drill_result import DrillFacts, drill_check
from slurm_jobs.nodes.doctor.file_rates import probe_checks
from slurm_jobs.nodes.doctor.login_folders import folder_checks, quota_checks, shared_check
from slurm_jobs.nodes.doctor.node_checks import node_checks
from slurm_jobs.nodes.doctor.pythons import python_checks, stage_python_checks
from slurm_jobs.nodes.doctor.site_facts import (
    DRILL_STAGE,
    NODE_STAGE,
    Asked,
    MeasuredFolder,
    MeasuredPython,
    SlurmFacts,
    SpecFacts,
)
from slurm_jobs.nodes.doctor.slurm_settings import NEEDED, is_unreachable, slurm_checks
from slurm_jobs.nodes.probe.probe_files import newest_probes
from slurm_jobs.plan.make_plan import options_of
from slurm_jobs.run.observe import in_doubt, status_of, views_until_over
from slurm_jobs.run_folder.paths import RunPaths, is_run
from slurm_jobs.run_folder.run_records import read_attempt, read_completion, read_meta
from slurm_jobs.schedulers.job_rows import SQUEUE_FORMAT
from slurm_jobs.schedulers.slurm import ask
from slurm_jobs.schedulers.slurm_environment import query_environment
from slurm_jobs.shared.configs.command_stages import DRILL_RUN, NODE_RUN
from slurm_jobs.shared.errors import (
    DamagedFileError,
    FileError,
    InputError,
    SchedulerError,
    SlurmJobsError,
    SpecError,
)
from slurm_jobs.shared.expand import literal_path
from slurm_jobs.shared.files import (
    create_once,
    make_private_dir,
    read_json,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.shared.machine import mount_of, user_name
from slurm_jobs.shared.node_records.doctor_facts import (
    SIGNAL_NAME,
    FolderFacts,
    NodeFacts,
    answer_name,
    drill_name,
    facts_name,
    hello_name,
    node_from_json,
)
from slurm_jobs.shared.processes.programs import ask_together
from slurm_jobs.shared.processes.signal_handlers import handling
from slurm_jobs.shared.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.shared.python_packages import installed_packages
from slurm_jobs.shared.records.job_resources import lead_within
from slurm_jobs.shared.regular_files import read_text
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.status.run_status import RunStatus

# Runs of `slurm-jobs doctor`: submitted, answered, waited for, and always cleaned up.
#
# They are in a hidden folder next to the user's runs, so that none of them is the newest run.


Say = Callable[[str], None]
_POLL_S = 0.1
_KEPT_S = 86_400.0
"""Runs of a check are useful for investigating a failure, but not for long."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Finished run of one stage."""

    run_dir: Path
    stage: str
    status: RunStatus | None
    """None if no status was available."""
    gave_up: str = ""
    """Reason why it was cancelled before its end."""

    @property
    def is_completed(self) -> bool:
        """True if both the scheduler and the records show it as completed."""
        return self.status is not None and self.status.status == "completed"

    @property
    def logs_command(self) -> str:
        """Command that shows the job's own log if there was no attempt: a set-up line failed."""
        begun = self.status is not None and self.status.stages[0].slices[0].attempt > 0
        which = "--failed" if begun else "--supervisor"
        return f"slurm-jobs logs {shlex.quote(str(self.run_dir))} {self.stage} {which}"

    def job_log(self) -> str:
        """Return the output of set-up and supervisor; empty if the job has not started."""
        logs = sorted(RunPaths(self.run_dir).logs_dir(self.stage).glob("slurm-*.log"))
        return "\n".join(read_text(path, errors="replace") for path in logs)


def run_to_its_end(loaded: LoadedSpec, *, wait_s: float, say: Say, num_nodes: int = 0) -> Ended:
    """Submit a spec of one stage and wait; cancel active jobs if the wait ends early.

    The run is cancelled if none of its jobs has been running for `wait_s`. For a node check, the
    requests of its `num_nodes` nodes are answered.

    Raises:
        SpecError: the cluster could never run it; SchedulerError: it was refused.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    ((name, _),) = loaded.spec.stages.items()
    folder = _hidden_runs_dir(loaded)
    before = set(folder.glob("*"))
    spec = loaded.spec.model_copy(update={"runs_dir": str(folder)})
    say(f"{name}: submitting a job")
    try:
        with _interrupts_held():
            run_dir = submit(replace(loaded, spec=spec), is_remembered=False).paths.run_dir
    except BaseException:  # a failed submit may have left a job
        for run_dir in folder.glob("*"):
            if run_dir not in before and is_run(run_dir):
                with suppress(InputError):  # without a plan it has no job
                    _cancel(run_dir)
        raise
    answering = Answering(run_dir, num_nodes) if num_nodes else None
    status: RunStatus | None = None
    gave_up = ""
    idle_since_s = time.monotonic()
    try:
        for status in views_until_over(
            lambda: status_of(run_dir, fresh=False),
            lambda status: status,
            in_doubt,
            read_meta(RunPaths(run_dir)).scheduler,
        ):
            part = status.stages[0].slices[0]
            job = f"job {part.job_id}" if part.job_id else "its job"
            why = f": {part.reason or part.state}" if status.status == "waiting" else ""
            say(f"{name}: {job} is {status.status}{why}")
            if status.status == "running":
                idle_since_s = time.monotonic()
            if time.monotonic() - idle_since_s > wait_s:
                _cancel(run_dir)
                waited = f"after {wait_s / 60:g} min it was cancelled"
                gave_up = f"{reason_of(run_dir, status)}; {waited}"
                break
    except BaseException:
        _cancel(run_dir)
        raise
    finally:
        if answering is not None:
            answering.end()
    return Ended(run_dir=run_dir, stage=name, status=status, gave_up=gave_up)


def _hidden_runs_dir(loaded: LoadedSpec) -> Path:
    """Return the folder of this user's `doctor` runs, hidden in that of the user's runs."""
    return Path(loaded.spec.runs_dir) / f".doctor-{os.getuid()}"


def reason_of(run_dir: Path, status: RunStatus) -> str:
    """Return the reason for the status of the only stage: from its record, else the scheduler."""
    stage = status.stages[0]
    part = stage.slices[0]
    if part.ending is not None:
        with suppress(OSError):
            record = read_completion(RunPaths(run_dir), stage.stage.name, part.ending)
            if record.reason:
                return record.full_reason
    problems = "; ".join(status.problems)
    return part.reason or part.state or problems or part.status


def _cancel(run_dir: Path) -> None:
    """Cancel, even if the user interrupts again.

    Raises:
        SchedulerError: cancelling failed; the message has the command.
    """
    with _interrupts_held():
        try:
            cancel(run_dir)
        except (SchedulerError, FileError) as error:
            message = f"{error}\nits jobs may still run: slurm-jobs cancel {run_dir}"
            raise SchedulerError(message) from error


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay interrupts until the end of the block."""
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    with handling(_INTERRUPTS, remember):
        yield
    if received:
        raise KeyboardInterrupt


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Treat a closed terminal or SIGTERM as an interrupt: no job may be left behind."""
    with handling((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


class Answering:
    """Thread that sends this machine's time to the nodes of a check, then signals their job."""

    def __init__(self, run_dir: Path, num_nodes: int) -> None:
        self._paths = RunPaths(run_dir)
        self._left = set(range(num_nodes))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop answering."""
        self._is_over.set()
        self._thread.join(5.0)

    def _answer(self) -> None:
        folder = self._paths.output_dir("doctor")
        while self._left and not self._is_over.wait(_POLL_S):
            for rank in sorted(self._left):
                with suppress(OSError):
                    read_json(folder / hello_name(rank))
                    seen_unix_s = time.time()
                    make_private_dir(folder)
                    values = {"seen_unix_s": seen_unix_s, "written_unix_s": time.time()}
                    write_json_atomic(folder / answer_name(rank), values)
                    self._left.discard(rank)
        if self._left:
            return
        problem = ""
        try:
            signal_job(self._paths)
        except (SlurmJobsError, OSError) as error:
            problem = f"it could not be sent: {error}"
        with suppress(OSError):  # the nodes then report that they got no answer
            write_json_atomic(folder / SIGNAL_NAME, {"problem": problem})


def signal_job(paths: RunPaths) -> None:
    """Send SIGUSR2 to the batch process of a check's job, as Slurm does near a time limit.

    Raises:
        SchedulerError: there is no job, or it could not be signalled.
    """
    record = read_attempt(paths, "doctor", 0, 1)
    if record is None:
        message = "its attempt has no record yet"
        raise SchedulerError(message)
    if record.scheduler == "local":
        os.kill(record.pid, STOP_SIGNAL)
    else:
        ask(["scancel", "--batch", f"--signal={STOP_SIGNAL.name}", record.job_id])


# Facts about the login node: Slurm's commands, file systems, Python. Leaves no changes.


T = TypeVar("T")

LIMIT_S = 15.0
"""For Slurm's commands together, and for each file system: the user is waiting."""
_MOST_BYTES = 4_000_000
_NUM_WRITES = 5
_NUM_OPENED = 200
_DISTRIBUTION = "slurm-jobs"
_MOUNTS = Path("/proc/self/mountinfo")


def ask_slurm() -> SlurmFacts:
    """Return the answers of Slurm's commands, each within `LIMIT_S`.

    The limit also holds if Slurm's daemons hang.
    """
    user = user_name()
    others = {
        "partitions": ["scontrol", "-a", "show", "partition", "-o"],
        "nodes": ["sinfo", "--all", "--noheader", "-o", "%R|%a|%D|%T|%P"],
        "queue": ["squeue", "--all", "--me", "-o", SQUEUE_FORMAT],
        "accounts": ["sacct", "-X", "-n", "-P", "-S", "now-1hours", "--format", "JobID"],
        "association": [
            *("sacctmgr", "-nP", "show", "assoc", "where", f"user={user}"),
            "format=Account,Partition",
        ],
    }
    version = _asked({"version": ["sbatch", "--version"]})
    before_s = time.time()
    # Not in parallel with the others: its time is compared with a clock.
    config = _asked({"config": ["scontrol", "show", "config"]})
    after_s = time.time()
    if config["config"].text:
        rest = _asked(others)
    else:  # the controller is unreachable, and each would wait for it
        rest = {name: Asked(problem="not asked: the controller does not answer") for name in others}
    return SlurmFacts(
        missing=tuple(name for name in NEEDED if shutil.which(name) is None),
        answers={**version, **config, **rest},
        asked_unix_s=(before_s, after_s),
    )


def _asked(commands: dict[str, list[str]]) -> dict[str, Asked]:
    answers = ask_together(
        commands, limit_s=LIMIT_S, max_bytes=_MOST_BYTES, env=query_environment(os.environ)
    )
    return {name: Asked(text=a.text, problem=a.problem) for name, a in answers.items()}


def measure_folder(purpose: str, folder: Path) -> MeasuredFolder:
    """Test a folder, or its nearest existing parent; one that hangs is abandoned."""
    late = f"its file system did not answer within {LIMIT_S:g} s"
    facts = FolderFacts(path=str(folder))
    dead = MeasuredFolder(purpose=purpose, folder=facts, late=late)
    return _within(lambda: _measured_folder(purpose, facts), LIMIT_S, dead)


def _within(call: Callable[[], T], limit_s: float, late: T) -> T:
    """Return the result of `call`, or `late`: a call into a dead file system never returns."""
    results: list[T | Exception] = []

    def work() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not results:
        return late
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _measured_folder(purpose: str, facts: FolderFacts) -> MeasuredFolder:
    place = Path(facts.path)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        mount, status = mount_of(_MOUNTS.read_text(), place.resolve()), os.statvfs(place)
    except OSError as error:
        return MeasuredFolder(purpose=purpose, folder=replace(facts, problem=str(error)))
    links, link_problem, write_s, problem = None, "", None, ""
    try:
        links, link_problem, write_s = _try_out(place)
    except OSError as error:
        problem = error.strerror or str(error)
    command = ["quota", "-w"]
    if mount.kind == "lustre":
        command = ["lfs", "quota", "-q", "-u", user_name(), str(place)]
    if shutil.which(command[0]) is None:
        quota = Asked(problem=f"there is no `{command[0]}` here")
    else:
        quota = _asked({"quota": command})["quota"]
    return MeasuredFolder(
        purpose=purpose,
        folder=replace(
            facts,
            kind=mount.kind,
            source=mount.source,
            free_bytes=status.f_bavail * status.f_frsize,
            total_bytes=status.f_blocks * status.f_frsize,
            problem=problem,
        ),
        free_files=status.f_favail if status.f_files else None,
        links=links,
        link_problem=link_problem,
        write_s=write_s,
        quota=quota,
    )


def _try_out(place: Path) -> tuple[bool, str, float]:
    """Test hard links as the ledger makes them, and time a durable small file."""
    folder = Path(tempfile.mkdtemp(prefix=".slurm-jobs-doctor-", dir=place))
    try:
        times = []
        for number in range(_NUM_WRITES):
            start_s = time.monotonic()
            write_bytes_atomic(folder / f"small-{number}", b"x" * 1024)
            times.append(time.monotonic() - start_s)
        try:
            is_made = create_once(folder / "entry", b"1")
            links, problem = is_made and not create_once(folder / "entry", b"2"), ""
        except OSError as error:
            links, problem = False, error.strerror or str(error)
        return links, problem, statistics.median(times)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure_python(pythons: Sequence[str]) -> MeasuredPython:
    """Return facts about this Python, its packages, and the time to read its files."""
    requires, requires_python = None, ""
    with suppress(importlib.metadata.PackageNotFoundError):  # not installed as a distribution
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
        requires = tuple(distribution.requires or ())
        requires_python = distribution.metadata["Requires-Python"] or ""
    late: tuple[float | None, int] = (None, 0)
    open_s, num_opened = _within(_time_opening, LIMIT_S, late)
    return MeasuredPython(
        version=platform.python_version(),
        executable=sys.executable,
        packages=installed_packages(sys.path),
        requires=requires,
        requires_python=requires_python,
        open_s=open_s,
        num_opened=num_opened,
        stage_pythons={path: shutil.which(path) is not None for path in pythons},
    )


def _time_opening() -> tuple[float | None, int]:
    """Return the mean time to open and read a module's file, and the number of files.

    Each is a request to a file server. Only files that this process has not read; other processes
    of this machine may have.
    """
    folder = Path(sysconfig.get_paths()["purelib"])
    paths = list(islice(folder.glob("*/*.py"), _NUM_OPENED))
    if not paths:
        return None, 0
    start_s = time.monotonic()
    for path in paths:
        path.read_bytes()
    return (time.monotonic() - start_s) / len(paths), len(paths)


# Specs of a node check and of a drill, and the facts of the user's spec that checks use.


NODE_MINUTES = 5.0
"""Time limit; it takes 15 s where everything answers."""
ANSWER_PATIENCE_S = 70.0
"""An NFS client may show a listing that is 30 s old (`acdirmin`), at either end."""
_LEAD_S = 10
_DRILL_MINUTES, _DRILL_LEAD_S = 2.0, 45
"""Slurm checks time limits every 30 s, and may signal a minute early: sbatch(1)."""
_LOCAL_DRILL_MINUTES, _LOCAL_DRILL_LEAD_S = 0.2, 6
_NO_FILE = "no-spec.yaml"


def load_or_make(spec: Path | None, overrides: Sequence[str]) -> LoadedSpec:
    """Load the spec; without one, make a stage without requests for this machine's cluster.

    A separate check, which a dead file system does not delay, tests whether runs can be created.

    Raises:
        SpecError: with every problem found.
    """
    if spec is not None:
        return load(spec, overrides=overrides)
    cluster = "auto" if shutil.which("sbatch") is not None else "local"
    values = {
        "name": "site",
        "cluster": cluster,
        "runs_dir": literal_path(str(default_runs_dir())),
        "stages": {"any": {"shell": "true", "resources": {"timeout_min": 60}}},
    }
    file = str(Path.cwd() / _NO_FILE)
    files = disk_files()

    def read_text(name: str) -> str:
        return json.dumps(values) if name == file else files.read_text(name)

    return load_spec(file, replace(files, read_text=read_text), overrides=tuple(overrides))


def spec_facts(loaded: LoadedSpec, profile: ClusterProfile, source: str) -> SpecFacts:
    """Return the facts of a spec that the checks depend on."""
    stages, stage = loaded.spec.stages.values(), loaded.spec.stages[source]
    options = {  # of sbatch, for a job of each stage
        name: {key.replace("_", "-"): value for key, value in options_of(each, profile).items()}
        for name, each in loaded.spec.stages.items()
    }
    partitions = [each["partition"] for each in options.values() if each.get("partition")]
    pythons = [each.python or profile.python for each in stages]
    checkpoint = stage.config.get("checkpoint") or {} if stage.run == "train" else {}
    resources = stage.resources
    return SpecFacts(
        stage=source,
        is_slurm=profile.scheduler == "slurm",
        trains=any(each.run == "train" for each in stages),
        gpus_per_node=resources.gpus_per_node,
        partitions=tuple(dict.fromkeys(map(str, partitions))),
        lead_s=lead_within(resources.timeout_min, resources.signal_lead_s),
        checkpoint_min=checkpoint.get("every_min"),
        may_requeue=not options[source].get("no-requeue"),
        num_slices=max(each.array.num_slices if each.array else 1 for each in stages),
        pythons=tuple(dict.fromkeys(python for python in pythons if python)),
    )


def node_spec(
    loaded: LoadedSpec, profile: ClusterProfile, source: str, num_nodes: int | None
) -> LoadedSpec:
    """Return a spec with one task on each of some nodes of the stage; two if one job can have them.

    Raises:
        InputError: the spec's `nodelist` is invalid.
    """
    asked = loaded.spec.stages[source].resources

    def with_nodes(number: int) -> LoadedSpec:
        resources = a_task_a_node(asked, num_nodes=number, minutes=NODE_MINUTES, lead_s=_LEAD_S)
        config = {"patience_s": ANSWER_PATIENCE_S}
        stage = OneStage(name=NODE_STAGE, run=NODE_RUN, config=config, resources=resources)
        return one_stage_spec(loaded, source, stage)

    number = num_nodes or num_named_nodes(loaded.spec, source, None, profile)
    if number is None:
        number = 2 if fits(with_nodes(2), profile) else 1
    return with_nodes(number)


def drill_spec(loaded: LoadedSpec, profile: ClusterProfile, source: str) -> LoadedSpec:
    """Return a spec that counts instead of the stage: one node, two ranks if the stage has several.

    srun starts several ranks, and must pass the signal on as well.
    """
    asked = loaded.spec.stages[source].resources
    is_local = profile.scheduler == "local"
    resources: Resources = asked.model_copy(
        update={
            "nodes": 1,
            "tasks_per_node": min(2, asked.nodes * asked.tasks_per_node),
            "cpus_per_task": 1,
            "gpus_per_node": min(1, asked.gpus_per_node),
            "mem_gb": None if asked.mem_gb is None else min(asked.mem_gb, 2.0),
            "timeout_min": _LOCAL_DRILL_MINUTES if is_local else _DRILL_MINUTES,
            "signal_lead_s": _LOCAL_DRILL_LEAD_S if is_local else _DRILL_LEAD_S,
        }
    )
    drill = OneStage(name=DRILL_STAGE, run=DRILL_RUN, config={}, resources=resources)
    return one_stage_spec(loaded, source, drill)


_SEEN_WITHIN_S = 15.0
"""A network file system may show an older listing of a folder for some seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Parts of a site to check."""

    loaded: LoadedSpec
    profile: ClusterProfile
    source: str
    """Stage whose nodes are checked."""
    is_given: bool
    """True if a spec was given."""
    num_nodes: int | None = None
    with_nodes: bool = True
    with_drill: bool = False
    wait_s: float = 600.0


@dataclass(kw_only=True, slots=True)
class CheckResults:
    """Results so far; they grow, so that an interrupt loses nothing."""

    checks: list[Check] = field(default_factory=list)
    unreachable: bool = False
    """True if Slurm's controller did not answer."""
    run_dirs: list[Path] = field(default_factory=list)
    """Runs whose jobs failed."""


def examine(wanted: Wanted, results: CheckResults, say: Say) -> None:
    """Check the login node and nodes, and run the drill, as requested; add results to `results`.

    Raises:
        InputError: the spec's `nodelist` is invalid.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    spec = spec_facts(wanted.loaded, wanted.profile, wanted.source)
    runs_dir = Path(wanted.loaded.spec.runs_dir)
    say("the login node")
    python = measure_python(spec.pythons)
    results.checks += python_checks(python)
    if spec.is_slurm:
        slurm = ask_slurm()
        results.unreachable = is_unreachable(slurm)
        results.checks += slurm_checks(slurm, spec)
    runs = measure_folder("runs_dir", runs_dir)
    folders = [runs]
    with suppress(RuntimeError):  # this uid has no account, and HOME is not set
        folders.append(measure_folder("home", Path.home()))
    for measured in folders:
        results.checks += folder_checks(measured)
    results.checks += quota_checks(folders)
    problems: list[str] = []
    is_there = not runs.late and runs_dir.is_dir()
    probes = newest_probes(runs_dir, problems) if is_there else ()
    file = shlex.quote(wanted.loaded.file) if wanted.is_given else "SPEC"
    results.checks += probe_checks(probes, problems, time.time(), f"slurm-jobs probe {file}")
    may_submit = not results.unreachable and not any(
        check.name == "runs_dir" and check.standing == "problem" for check in results.checks
    )
    refused = "no job was submitted: see the problems above"
    nodes: list[NodeFacts] = []
    if may_submit:
        for folder in _hidden_runs_dir(wanted.loaded).glob("*"):
            with suppress(OSError):
                if is_run(folder) and time.time() - folder.stat().st_mtime > _KEPT_S:
                    shutil.rmtree(folder, ignore_errors=True)
    if wanted.with_nodes and may_submit:
        nodes = _measure_nodes(wanted, results, say)
    elif wanted.with_nodes:
        results.checks.append(Check.unknown("nodes", refused, where="no node"))
    results.checks += stage_python_checks(python, {node.executable for node in nodes})
    results.checks += node_checks(nodes, spec, python.requires, python.requires_python)
    if spec.is_slurm:
        seen_by = [node.node for node in nodes if node.login is not None]
        results.checks.append(shared_check(runs, seen_by))
    if wanted.with_drill and may_submit:
        _drill(wanted, results, say)
    elif wanted.with_drill:
        results.checks.append(Check.unknown("drill", refused, where="no node"))


def _measure_nodes(wanted: Wanted, results: CheckResults, say: Say) -> list[NodeFacts]:
    """Return the facts from a short job; a failure becomes a check."""
    loaded = node_spec(wanted.loaded, wanted.profile, wanted.source, wanted.num_nodes)
    number = loaded.spec.stages[NODE_STAGE].resources.nodes
    ended = _run(loaded, wanted, results, say, num_nodes=number)
    if ended is None:
        return []
    nodes = _read_nodes(ended, number)
    if len(nodes) < number or not ended.is_completed:
        results.run_dirs.append(ended.run_dir)
        why = ended.gave_up
        if not why and ended.status is not None:
            why = f"{ended.status.status}: {reason_of(ended.run_dir, ended.status)}"
        is_late = bool(ended.gave_up) and not nodes
        if not nodes and (log_lines := ended.job_log().splitlines()):
            why = f"{why}; its log ends with: {log_lines[-1]}"
        make_check = Check.unknown if is_late else Check.problem
        message = f"{len(nodes)} of {number} nodes were checked: {why}"
        remedy = "wait longer: --wait MINUTES" if is_late else ended.logs_command
        results.checks.append(make_check("nodes", message, remedy, where="the job"))
    return nodes


def _run(
    loaded: LoadedSpec, wanted: Wanted, results: CheckResults, say: Say, *, num_nodes: int = 0
) -> Ended | None:
    """Run a spec to its end; None, and a check, if the job was not accepted."""
    ((name, _),) = loaded.spec.stages.items()
    try:
        return run_to_its_end(loaded, wait_s=wanted.wait_s, say=say, num_nodes=num_nodes)
    except SpecError as error:
        message = "; ".join(problem.message for problem in error.problems)
        message = message.replace(f"stages.{name}.", f"stages.{wanted.source}.")
        message = f"the cluster could never run it: {message}"
        remedy = f"{wanted.loaded.file}, or --set; see `slurm-jobs check --cluster`"
    except SchedulerError as error:
        message, *more = str(error).splitlines()  # advice that follows is mostly for longer runs
        remedy = "correct what it names, in `slurm:` or `resources:`, or with --set"
        remedy = next((line for line in more if "slurm-jobs cancel" in line), remedy)
    check_name = "nodes" if name == NODE_STAGE else name
    results.checks.append(Check.problem(check_name, message, remedy, where="the job"))
    return None


def _read_nodes(ended: Ended, number: int) -> list[NodeFacts]:
    """Read the facts of nodes; wait for all of a completed job, because a listing may be old."""
    folder = RunPaths(ended.run_dir).output_dir(NODE_STAGE)
    end_s = time.monotonic() + (_SEEN_WITHIN_S if ended.is_completed else 0.0)
    while True:
        nodes = []
        for rank in range(number):
            try:
                nodes.append(node_from_json(read_json(folder / facts_name(rank))))
            except FileNotFoundError:
                continue
        if len(nodes) == number or time.monotonic() > end_s:
            return nodes
        time.sleep(0.5)


def _drill(wanted: Wanted, results: CheckResults, say: Say) -> None:
    loaded = drill_spec(wanted.loaded, wanted.profile, wanted.source)
    ended = _run(loaded, wanted, results, say)
    if ended is None:
        return
    folder, status = RunPaths(ended.run_dir).output_dir(DRILL_STAGE), ended.status
    counters = []
    for rank in range(loaded.spec.stages[DRILL_STAGE].resources.tasks_per_node):
        try:
            counters.append(read_json(folder / drill_name(rank)))
        except FileNotFoundError:
            counters.append({})
        except DamagedFileError as error:
            counters.append({"damaged": str(error)})
    facts = DrillFacts(
        status="not seen" if status is None else status.status,
        reason="" if status is None else reason_of(ended.run_dir, status),
        log=ended.job_log(),
        counters=counters,
        logs_command=ended.logs_command,
        gave_up=ended.gave_up,
    )
    check = drill_check(facts)
    results.checks.append(check)
    if check.standing != "ok":
        results.run_dirs.append(ended.run_dir)
