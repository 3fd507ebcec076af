"""Checks of a site that prevent wasted hours: query the login node and nodes, and judge them."""

from __future__ import annotations

import dataclasses
import getpass
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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from slurm_jobs.commands.find_run import default_runs_dir
from slurm_jobs.commands.probe import OneStage, a_task_a_node, fits, num_named_nodes, one_stage_spec
from slurm_jobs.commands.read_spec import disk_files, load
from slurm_jobs.commands.resume import cancel
from slurm_jobs.commands.submit import submit
from slurm_jobs.nodes.doctor_model import (
    DRILL_STAGE,
    NODE_STAGE,
    Asked,
    Check,
    FolderLook,
    PythonLook,
    SlurmFacts,
    SpecFacts,
)
from slurm_jobs.nodes.judge_nodes import (
    DrillFacts,
    drill_check,
    folder_checks,
    node_checks,
    python_checks,
    quota_checks,
    shared_check,
    stage_python_checks,
)
from slurm_jobs.nodes.judge_slurm import NEEDED, is_unreachable, probe_checks, slurm_checks
from slurm_jobs.nodes.probe_records import newest_probes
from slurm_jobs.plan import options_of
from slurm_jobs.run.observe import in_doubt, looks_until_over, status_of
from slurm_jobs.run_folder.paths import RunPaths, is_run
from slurm_jobs.run_folder.run_records import read_attempt, read_completion, read_meta
from slurm_jobs.schedulers.slurm import SQUEUE_FORMAT, ask
from slurm_jobs.schedulers.slurm_environment import query_environment
from slurm_jobs.shared.configs.stages import DRILL_RUN, NODE_RUN
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
from slurm_jobs.shared.machine import installed_packages, mount_of
from slurm_jobs.shared.node_records import (
    SIGNAL_NAME,
    FolderFacts,
    NodeFacts,
    answer_name,
    drill_name,
    facts_name,
    hello_name,
    node_from_json,
)
from slurm_jobs.shared.process import STOP_SIGNAL, ask_together
from slurm_jobs.shared.records import lead_within
from slurm_jobs.spec.load import LoadedSpec, load_spec
from slurm_jobs.spec.model import Resources, RunSpec, Stage
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.status import RunStatus

# Runs of `slurm-jobs doctor`: submitted, answered, waited for, and always cleaned up.
#
# They are in a hidden folder next to the user's runs, so that none of them is the newest run.


OnLook = Callable[[RunStatus], None]
_POLL_S = 0.1
_KEPT_S = 86_400.0
"""Runs of a check are useful for investigating a failure, but not for long."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def folder_of_looks(runs_dir: Path) -> Path:
    """Return the folder of this user's `doctor` runs."""
    return runs_dir / f".doctor-{os.getuid()}"


def beside(loaded: LoadedSpec) -> LoadedSpec:
    """Return the spec with the hidden folder for its run."""
    folder = folder_of_looks(Path(loaded.spec.runs_dir))
    return replace(loaded, spec=loaded.spec.model_copy(update={"runs_dir": str(folder)}))


def remove_old(runs_dir: Path) -> None:
    """Remove the runs of earlier checks that are too old to be useful."""
    for folder in folder_of_looks(runs_dir).glob("*"):
        with suppress(OSError):
            if is_run(folder) and time.time() - folder.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Finished run."""

    run_dir: Path
    status: RunStatus | None
    """None if no status was available."""
    gave_up: str = ""
    """Reason why it was cancelled before its end."""


def run_to_its_end(
    loaded: LoadedSpec, *, wait_s: float, on_look: OnLook, num_nodes: int = 0
) -> Ended:
    """Submit and wait; cancel active jobs if the wait ends early.

    Args:
        loaded: spec with one stage.
        wait_s: longest that nothing of it may run.
        on_look: called with each status.
        num_nodes: nodes of a node check, whose questions are answered; 0 for none.

    Raises:
        SpecError: the cluster could never run it; SchedulerError: it was refused.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    folder = Path(loaded.spec.runs_dir)
    before = set(folder.glob("*"))
    try:
        with _interrupts_held():
            run_dir = submit(loaded).paths.run_dir
    except BaseException:
        _cancel_new(folder, before)
        raise
    answering = Answering(run_dir, num_nodes) if num_nodes else None
    try:
        return _wait(run_dir, wait_s, on_look)
    except BaseException:
        _cancel(run_dir)
        raise
    finally:
        if answering is not None:
            answering.end()


def _wait(run_dir: Path, wait_s: float, on_look: OnLook) -> Ended:
    status: RunStatus | None = None
    idle_since_s = time.monotonic()
    for seen in looks_until_over(
        lambda: status_of(run_dir, fresh=False),
        lambda seen: seen,
        in_doubt,
        read_meta(RunPaths(run_dir)).scheduler,
    ):
        status = seen
        on_look(seen)
        if seen.status == "running":
            idle_since_s = time.monotonic()
        if time.monotonic() - idle_since_s > wait_s:
            _cancel(run_dir)
            waited = f"after {wait_s / 60:g} min it was cancelled"
            return Ended(
                run_dir=run_dir, status=status, gave_up=f"{reason_of(run_dir, seen)}; {waited}"
            )
    return Ended(run_dir=run_dir, status=status)


def reason_of(run_dir: Path, status: RunStatus) -> str:
    """Return the reason of its only stage's status: from the record, otherwise the scheduler."""
    stage = status.stages[0]
    part = stage.slices[0]
    if part.ending is not None:
        with suppress(OSError):
            record = read_completion(RunPaths(run_dir), stage.stage.name, part.ending)
            if record.reason:
                return record.reason
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
            message = f"{error}\nits jobs may live: slurm-jobs cancel {run_dir}"
            raise SchedulerError(message) from error


def _cancel_new(folder: Path, before: Collection[Path]) -> None:
    """Cancel what a failed submit may have left."""
    for run_dir in folder.glob("*"):
        if run_dir not in before and is_run(run_dir):
            with suppress(InputError):  # without a plan it has no job
                _cancel(run_dir)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay interrupts until the end of the block."""
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """Treat a closed terminal or SIGTERM as an interrupt: no job may be left behind."""
    others = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in others}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    """Send SIGUSR2 to the batch process of a look's job, as Slurm does near a time limit.

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
    user = getpass.getuser()
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
        rest = {name: Asked(problem="not asked: the controller is silent") for name in others}
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


def look_at_folder(purpose: str, folder: Path) -> FolderLook:
    """Test a folder, or its nearest existing parent; one that hangs is abandoned."""
    late = f"its file system did not answer within {LIMIT_S:g} s"
    dead = FolderLook(purpose=purpose, folder=FolderFacts(path=str(folder)), late=late)
    return _within(lambda: _look(purpose, folder), LIMIT_S, dead)


def _within(look: Callable[[], T], limit_s: float, late: T) -> T:
    """Return the result of `look`, or `late`: a call into a dead file system never returns."""
    found: list[T | Exception] = []

    def work() -> None:
        try:
            found.append(look())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not found:
        return late
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _look(purpose: str, folder: Path) -> FolderLook:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        mount, status = mount_of(_MOUNTS.read_text(), place.resolve()), os.statvfs(place)
    except OSError as error:
        return FolderLook(purpose=purpose, folder=FolderFacts(path=str(folder), problem=str(error)))
    facts = FolderFacts(
        path=str(folder),
        kind=mount.kind,
        source=mount.source,
        free_bytes=status.f_bavail * status.f_frsize,
        total_bytes=status.f_blocks * status.f_frsize,
    )
    links, link_problem, write_s, problem = None, "", None, ""
    try:
        links, link_problem, write_s = _try_out(place)
    except OSError as error:
        problem = error.strerror or str(error)
    return FolderLook(
        purpose=purpose,
        folder=dataclasses.replace(facts, problem=problem),
        free_files=status.f_favail if status.f_files else None,
        links=links,
        link_problem=link_problem,
        write_s=write_s,
        quota=_quota(place, mount.kind),
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


def _quota(place: Path, kind: str) -> Asked:
    command = ["quota", "-w"]
    if kind == "lustre":
        command = ["lfs", "quota", "-q", "-u", getpass.getuser(), str(place)]
    if shutil.which(command[0]) is None:
        return Asked(problem=f"there is no `{command[0]}` here")
    return _asked({"quota": command})["quota"]


def look_at_python(pythons: Sequence[str]) -> PythonLook:
    """Return facts about this Python, its packages, and the time to read its files."""
    requires, requires_python = _requirements()
    late: tuple[float | None, int] = (None, 0)
    open_s, num_opened = _within(_time_opening, LIMIT_S, late)
    return PythonLook(
        version=platform.python_version(),
        executable=sys.executable,
        packages=installed_packages(sys.path),
        requires=requires,
        requires_python=requires_python,
        open_s=open_s,
        num_opened=num_opened,
        stage_pythons={path: shutil.which(path) is not None for path in pythons},
    )


def _requirements() -> tuple[tuple[str, ...] | None, str]:
    """Return the requirements of our distribution; None if it is not installed as one."""
    try:
        found = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None, ""
    return tuple(found.requires or ()), found.metadata["Requires-Python"] or ""


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

    return load_spec(
        file, dataclasses.replace(files, read_text=read_text), overrides=tuple(overrides)
    )


def spec_facts(loaded: LoadedSpec, profile: ClusterProfile, source: str) -> SpecFacts:
    """Return the facts of a spec that the checks depend on."""
    spec, stage = loaded.spec, loaded.spec.stages[source]
    options = [_options(each, profile) for each in spec.stages.values()]
    checkpoint: dict[str, Any] = (
        stage.config.get("checkpoint") or {} if stage.run == "train" else {}
    )
    pythons = [each.python or profile.python for each in spec.stages.values()]
    asked = stage.resources
    return SpecFacts(
        stage=source,
        is_slurm=profile.scheduler == "slurm",
        trains=any(each.run == "train" for each in spec.stages.values()),
        gpus_per_node=asked.gpus_per_node,
        partitions=tuple(
            dict.fromkeys(str(o["partition"]) for o in options if o.get("partition") is not None)
        ),
        lead_s=lead_within(asked.timeout_min, asked.signal_lead_s),
        checkpoint_min=checkpoint.get("every_min"),
        may_requeue=not _options(stage, profile).get("no-requeue"),
        num_slices=max(each.array.num_slices if each.array else 1 for each in spec.stages.values()),
        pythons=tuple(dict.fromkeys(python for python in pythons if python)),
    )


def _options(stage: Stage, profile: ClusterProfile) -> dict[str, Any]:
    """Return the sbatch options of a job of the stage."""
    return {key.replace("_", "-"): value for key, value in options_of(stage, profile).items()}


def node_spec(
    loaded: LoadedSpec, profile: ClusterProfile, source: str, num_nodes: int | None
) -> LoadedSpec:
    """Return a spec with one task on each of some nodes of the stage; two if one job can have them.

    Raises:
        InputError: the spec's nodelist is none.
    """
    number = num_nodes or num_named_nodes(loaded.spec, source, None, profile)
    if number is None:
        number = 2 if fits(_node_spec(loaded, source, 2), profile) else 1
    return _node_spec(loaded, source, number)


def _node_spec(loaded: LoadedSpec, source: str, num_nodes: int) -> LoadedSpec:
    asked = loaded.spec.stages[source].resources
    stage_made = OneStage(
        name=NODE_STAGE,
        run=NODE_RUN,
        config={"patience_s": ANSWER_PATIENCE_S},
        resources=a_task_a_node(asked, num_nodes=num_nodes, minutes=NODE_MINUTES, lead_s=_LEAD_S),
    )
    return one_stage_spec(loaded, source, stage_made)


def drill_spec(loaded: LoadedSpec, profile: ClusterProfile, source: str) -> LoadedSpec:
    """Return a counter in the stage's place: one node, and two ranks where it has several.

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
    stage_made = OneStage(name=DRILL_STAGE, run=DRILL_RUN, config={}, resources=resources)
    return one_stage_spec(loaded, source, stage_made)


def num_nodes_of(spec: RunSpec) -> int:
    """Return the number of nodes of a check's only stage."""
    (stage,) = spec.stages.values()
    return stage.resources.nodes


Say = Callable[[str], None]
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
class Found:
    """Results so far; they grow, so that an interrupt loses nothing."""

    checks: list[Check] = field(default_factory=list)
    unreachable: bool = False
    """True if Slurm's controller did not answer."""
    run_dirs: list[Path] = field(default_factory=list)
    """Runs whose jobs failed."""


def examine(wanted: Wanted, found: Found, say: Say) -> None:
    """Check the login node and nodes, and run the drill, as requested; add results to `found`.

    Raises:
        InputError: the spec's nodelist is none.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    spec = spec_facts(wanted.loaded, wanted.profile, wanted.source)
    runs_dir = Path(wanted.loaded.spec.runs_dir)
    say("the login node")
    python = look_at_python(spec.pythons)
    found.checks += python_checks(python)
    if spec.is_slurm:
        slurm = ask_slurm()
        found.unreachable = is_unreachable(slurm)
        found.checks += slurm_checks(slurm, spec)
    runs, home = look_at_folder("runs_dir", runs_dir), look_at_folder("home", Path.home())
    found.checks += [*folder_checks(runs), *folder_checks(home), *quota_checks([runs, home])]
    problems: list[str] = []
    is_there = not runs.late and runs_dir.is_dir()
    probes = newest_probes(runs_dir, problems) if is_there else ()
    file = shlex.quote(wanted.loaded.file) if wanted.is_given else "SPEC"
    found.checks += probe_checks(probes, problems, time.time(), f"slurm-jobs probe {file}")
    nodes: list[NodeFacts] = []
    may_submit = not found.unreachable and not any(
        check.name == "runs_dir" and check.standing == "problem" for check in found.checks
    )
    if may_submit:
        remove_old(runs_dir)
    if wanted.with_nodes:
        nodes = _look_at_nodes(wanted, found, say) if may_submit else _no_job(found, "nodes")
    found.checks += stage_python_checks(python, {node.executable for node in nodes})
    found.checks += node_checks(nodes, spec, python.requires, python.requires_python)
    if spec.is_slurm:
        seen_by = [node.node for node in nodes if node.login is not None]
        found.checks.append(shared_check(runs, seen_by))
    if wanted.with_drill:
        if may_submit:
            found.checks.append(_drill(wanted, found, say))
        else:
            _no_job(found, "drill")


def _no_job(found: Found, name: str) -> list[NodeFacts]:
    message = "no job was submitted: see the problems above"
    found.checks.append(Check.unknown(name, message, where="no node"))
    return []


def _look_at_nodes(wanted: Wanted, found: Found, say: Say) -> list[NodeFacts]:
    """Return the facts from a short job; a failure becomes a check."""
    loaded = beside(node_spec(wanted.loaded, wanted.profile, wanted.source, wanted.num_nodes))
    number = num_nodes_of(loaded.spec)
    ended = _run(loaded, wanted, found, say, NODE_STAGE, num_nodes=number)
    if ended is None:
        return []
    nodes = _read_nodes(ended, number)
    status = ended.status
    if len(nodes) < number or status is None or status.status != "completed":
        found.run_dirs.append(ended.run_dir)
        why = ended.gave_up or (
            "" if status is None else f"{status.status}: {reason_of(ended.run_dir, status)}"
        )
        is_late = bool(ended.gave_up) and not nodes
        if not nodes and (said := _job_log(ended.run_dir, NODE_STAGE).splitlines()):
            why = f"{why}; its log ends with: {said[-1]}"
        found.checks.append(
            Check(
                name="nodes",
                standing="unknown" if is_late else "problem",
                told=f"{len(nodes)} of {number} nodes were checked: {why}",
                remedy="wait longer: --wait MINUTES" if is_late else _logs(ended, NODE_STAGE),
                where="the job",
            )
        )
    return nodes


def _logs(ended: Ended, stage: str) -> str:
    """Return the job's own log if there was no attempt: a set-up line failed."""
    begun = ended.status is not None and ended.status.stages[0].slices[0].attempt > 0
    which = "--failed" if begun else "--supervisor"
    return f"slurm-jobs logs {shlex.quote(str(ended.run_dir))} {stage} {which}"


def _run(
    loaded: LoadedSpec, wanted: Wanted, found: Found, say: Say, name: str, *, num_nodes: int = 0
) -> Ended | None:
    """Run a spec to its end; None, and a check, if the job was not accepted."""

    def on_look(status: RunStatus) -> None:
        part = status.stages[0].slices[0]
        job = f"job {part.job_id}" if part.job_id else "its job"
        why = f": {part.reason or part.state}" if status.status == "waiting" else ""
        say(f"{name}: {job} is {status.status}{why}")

    say(f"{name}: submitting a job")
    try:
        return run_to_its_end(loaded, wait_s=wanted.wait_s, on_look=on_look, num_nodes=num_nodes)
    except SpecError as error:
        message = "; ".join(problem.message for problem in error.problems)
        message = message.replace(f"stages.{name}.", f"stages.{wanted.source}.")
        message = f"the cluster could never run it: {message}"
        remedy = f"{wanted.loaded.file}, or --set; see `slurm-jobs check --cluster`"
    except SchedulerError as error:
        message, *more = str(error).splitlines()  # advice that follows is mostly for longer runs
        remedy = "correct what it names, in `slurm:` or `resources:`, or with --set"
        remedy = next((line for line in more if "slurm-jobs cancel" in line), remedy)
    what = "nodes" if name == NODE_STAGE else name
    check = Check.problem(what, message, remedy, where="the job")
    found.checks.append(check)
    return None


def _read_nodes(ended: Ended, number: int) -> list[NodeFacts]:
    """Read the facts of nodes; wait for all of a completed job, because a listing may be old."""
    folder = RunPaths(ended.run_dir).output_dir(NODE_STAGE)
    is_whole = ended.status is not None and ended.status.status == "completed"
    end_s = time.monotonic() + (_SEEN_WITHIN_S if is_whole else 0.0)
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


def _drill(wanted: Wanted, found: Found, say: Say) -> Check:
    loaded = beside(drill_spec(wanted.loaded, wanted.profile, wanted.source))
    before = len(found.checks)
    ended = _run(loaded, wanted, found, say, DRILL_STAGE)
    if ended is None:
        return found.checks.pop(before)
    (stage,) = loaded.spec.stages.values()
    facts = _drill_facts(ended, stage.resources.tasks_per_node)
    check = drill_check(facts)
    if check.standing != "ok":
        found.run_dirs.append(ended.run_dir)
    return check


def _drill_facts(ended: Ended, num_ranks: int) -> DrillFacts:
    paths, status = RunPaths(ended.run_dir), ended.status
    counters = []
    for rank in range(num_ranks):
        try:
            counters.append(read_json(paths.output_dir(DRILL_STAGE) / drill_name(rank)))
        except FileNotFoundError:
            counters.append({})
        except DamagedFileError as error:
            counters.append({"damaged": str(error)})
    return DrillFacts(
        status="not seen" if status is None else status.status,
        reason="" if status is None else reason_of(ended.run_dir, status),
        log=_job_log(ended.run_dir, DRILL_STAGE),
        counters=counters,
        logs_command=_logs(ended, DRILL_STAGE),
        gave_up=ended.gave_up,
    )


def _job_log(run_dir: Path, stage: str) -> str:
    """Return the output of set-up and supervisor; empty if the job has not started."""
    logs = sorted(RunPaths(run_dir).logs_dir(stage).glob("slurm-*.log"))
    return "\n".join(path.read_text(errors="replace") for path in logs)
