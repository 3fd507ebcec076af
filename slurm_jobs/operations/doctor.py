"""Checks of a site that prevent wasted hours: query the login node and nodes, and judge them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.doctor_records import NodeFacts, drill_name, facts_name, node_from_json
from slurm_jobs.common.errors import DamagedFileError, SchedulerError, SpecError
from slurm_jobs.common.files import read_json
from slurm_jobs.doctor.judging_drill import DrillFacts, drill_check
from slurm_jobs.doctor.judging_files import folder_checks, quota_checks, shared_check
from slurm_jobs.doctor.judging_nodes import node_checks
from slurm_jobs.doctor.judging_probes import probe_checks
from slurm_jobs.doctor.judging_python import python_checks, stage_python_checks
from slurm_jobs.doctor.judging_slurm import is_unreachable, slurm_checks
from slurm_jobs.doctor.model import (
    DRILL_STAGE,
    NODE_STAGE,
    Check,
    FolderLook,
    PythonLook,
    SpecFacts,
)
from slurm_jobs.operations.doctor_jobs import (
    Ended,
    beside,
    reason_of,
    remove_old,
    run_to_its_end,
)
from slurm_jobs.operations.doctor_login import ask_slurm, look_at_folder, look_at_python
from slurm_jobs.operations.doctor_specs import drill_spec, node_spec, num_nodes_of, spec_facts
from slurm_jobs.probes.reading import newest_probes
from slurm_jobs.reconcile import RunStatus
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.spec.loader import LoadedSpec

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
    runs = _login(wanted, spec, found, runs_dir)
    nodes: list[NodeFacts] = []
    may_submit = not found.unreachable and not _is_unwritable(found.checks)
    if may_submit:
        remove_old(runs_dir)
    if wanted.with_nodes:
        nodes = _look_at_nodes(wanted, found, say) if may_submit else _no_job(found, "nodes")
    found.checks += stage_python_checks(python, {node.executable for node in nodes})
    found.checks += _of_nodes(nodes, spec, python)
    if spec.is_slurm:
        seen_by = [node.node for node in nodes if node.login is not None]
        found.checks.append(shared_check(runs, seen_by))
    if wanted.with_drill:
        if may_submit:
            found.checks.append(_drill(wanted, found, say))
        else:
            _no_job(found, "drill")


def _login(wanted: Wanted, spec: SpecFacts, found: Found, runs_dir: Path) -> FolderLook:
    """Query it, add the checks, and return the facts about `runs_dir`."""
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
    return runs


def _is_unwritable(checks: list[Check]) -> bool:
    return any(check.name == "runs_dir" and check.standing == "problem" for check in checks)


def _no_job(found: Found, name: str) -> list[NodeFacts]:
    message = "no job was submitted: see the problems above"
    found.checks.append(Check(name=name, standing="unknown", told=message, where="no node"))
    return []


def _of_nodes(nodes: list[NodeFacts], spec: SpecFacts, python: PythonLook) -> list[Check]:
    return node_checks(nodes, spec, python.requires, python.requires_python)


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
    check = Check(name=what, standing="problem", told=message, remedy=remedy, where="the job")
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
