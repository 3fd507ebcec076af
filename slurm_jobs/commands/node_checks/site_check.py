"""Checks of a site that prevent wasted hours: query the login node and nodes, and judge them."""

from __future__ import annotations

import shlex
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_jobs.base.errors import DamagedFileError, SchedulerError, SpecError
from slurm_jobs.base.files import read_json
from slurm_jobs.commands.node_checks.check_specs import drill_spec, node_spec, spec_facts
from slurm_jobs.commands.node_checks.doctor_runs import (
    KEPT_S,
    Ended,
    NotCancelledError,
    Say,
    hidden_runs_dir,
    reason_of,
    run_to_its_end,
)
from slurm_jobs.commands.node_checks.login_node import ask_slurm, measure_folder, measure_python
from slurm_jobs.formats.node_records.doctor_facts import (
    NodeFacts,
    drill_name,
    facts_name,
    node_from_json,
)
from slurm_jobs.nodes.doctor.doctor_check import Check, Judgement, judged
from slurm_jobs.nodes.doctor.drill_result import drill_check
from slurm_jobs.nodes.doctor.file_rates import probe_checks
from slurm_jobs.nodes.doctor.login_folders import folder_checks, quota_checks, shared_check
from slurm_jobs.nodes.doctor.node_checks import node_checks
from slurm_jobs.nodes.doctor.pythons import PYTHON_CHECKS, stage_python_checks
from slurm_jobs.nodes.doctor.site_facts import DRILL_STAGE, NODE_STAGE
from slurm_jobs.nodes.doctor.slurm_settings import slurm_checks
from slurm_jobs.nodes.probe.probe_reader import newest_probes
from slurm_jobs.run_folder.paths import RunPaths, is_run
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.worker.attempt_notes import NOT_REQUEUED, read_note

_SEEN_WITHIN_S = 15.0
"""A network file system may show an older listing of a folder for some seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteParts:
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


def examine(wanted: SiteParts, results: CheckResults, say: Say) -> None:
    """Check the login node and nodes, and run the drill, as requested; add results to `results`.

    Raises:
        InputError: the spec's `nodelist` is invalid.
        KeyboardInterrupt: the user ended it; its jobs are cancelled.
    """
    spec = spec_facts(wanted.loaded, wanted.profile, wanted.source)
    runs_dir = Path(wanted.loaded.spec.runs_dir)
    say("the login node")
    python = measure_python(spec.pythons)
    spec = replace(spec, requires=python.requires, requires_python=python.requires_python)
    results.checks += judged(PYTHON_CHECKS, python)
    if spec.is_slurm:
        slurm = ask_slurm()
        results.unreachable = not slurm.settings
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
        for folder in hidden_runs_dir(wanted.loaded).glob("*"):
            with suppress(OSError):
                if is_run(folder) and time.time() - folder.stat().st_mtime > KEPT_S:
                    shutil.rmtree(folder, ignore_errors=True)
    if wanted.with_nodes and may_submit:
        nodes = _measure_nodes(wanted, results, say)
    elif wanted.with_nodes:
        results.checks.append(Judgement("unknown", refused).named("nodes", "no node"))
    results.checks += stage_python_checks(python, {node.executable for node in nodes})
    results.checks += node_checks(nodes, spec)
    if spec.is_slurm:
        seen_by = [node.node for node in nodes if node.login is not None]
        results.checks.append(shared_check(runs, seen_by))
    if wanted.with_drill and may_submit:
        _drill(wanted, results, say)
    elif wanted.with_drill:
        results.checks.append(Judgement("unknown", refused).named("drill", "no node"))


def _measure_nodes(wanted: SiteParts, results: CheckResults, say: Say) -> list[NodeFacts]:
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
        message = f"{len(nodes)} of {number} nodes were checked: {why}"
        judgement = Judgement("problem", message, ended.logs_command)
        if is_late:
            judgement = Judgement("unknown", message, "wait longer: --wait MINUTES")
        results.checks.append(judgement.named("nodes", "the job"))
    return nodes


def _run(
    loaded: LoadedSpec, wanted: SiteParts, results: CheckResults, say: Say, *, num_nodes: int = 0
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
    except NotCancelledError as error:
        message, *_ = str(error.cause).splitlines()
        remedy = error.remedy
    except SchedulerError as error:
        message, *_ = str(error).splitlines()  # advice that follows is mostly for longer runs
        remedy = "correct what it names, in `slurm:` or `resources:`, or with --set"
    check_name = "nodes" if name == NODE_STAGE else name
    results.checks.append(Judgement("problem", message, remedy).named(check_name, "the job"))
    return None


def _refused_requeue(ended: Ended) -> str | None:
    """Return why the newest attempt, which saved its state, was not requeued; None if it was."""
    if ended.status is None:
        return None
    newest = ended.status.stages[0].slices[0].attempt
    return read_note(RunPaths(ended.run_dir).task_dir(DRILL_STAGE, 0, newest) / NOT_REQUEUED)


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


def _drill(wanted: SiteParts, results: CheckResults, say: Say) -> None:
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
    check = drill_check(
        counters,
        status="not seen" if status is None else status.status,
        reason="" if status is None else reason_of(ended.run_dir, status),
        refusal=_refused_requeue(ended),
        logs_command=ended.logs_command,
        gave_up=ended.gave_up,
    )
    results.checks.append(check)
    if check.standing != "ok":
        results.run_dirs.append(ended.run_dir)
