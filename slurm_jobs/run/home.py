"""Cluster and user that a run belongs to, and what that forbids or leaves unknown here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from slurm_jobs.base.errors import InputError, SchedulerError
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.run_folder.run_values import RunMeta, RunRecords
from slurm_jobs.schedulers.protocol import Answer, SourceProblem
from slurm_jobs.status.reconcile import reconcile


def refuse_elsewhere(paths: RunPaths, meta: RunMeta) -> None:
    """Raise if the run or its jobs belong to another cluster or user, for verbs that act.

    A file system may serve several clusters, and root may read every user's run. There squeue
    answers without the run's jobs, which does not mean that they have ended.

    Raises:
        InputError: they do.
        SchedulerError: Slurm does not tell the name of this cluster.
    """
    uid = os.getuid()
    owner = anothers_folder(paths.run_dir)
    if owner and not _has_one_owner_for_all(paths.run_dir):
        message = (
            f"the folder of run {meta.run_id} is {owner}, and you are uid {uid}: what it says "
            "would run as you. Let its owner run the command, or submit the spec as yours"
        )
        raise InputError(message)
    if meta.scheduler != "slurm":
        return
    if meta.uid is not None and meta.uid != uid:
        message = (
            f"run {meta.run_id} is {meta.submitted_by}'s (uid {meta.uid}), and you are uid {uid}; "
            f"only they can query and end its jobs: run the command as {meta.submitted_by}. "
            f"If the run is yours by now and all its jobs have ended, write your uid as `uid` into "
            f"{paths.run_json}"
        )
        raise InputError(message)
    if meta.cluster_name is None:
        return
    here = _settings().get("ClusterName")
    if here is not None and here != meta.cluster_name:
        message = (
            f"run {meta.run_id} was submitted on the cluster `{meta.cluster_name}`, and this "
            f"machine belongs to `{here}`, whose Slurm knows nothing of its jobs: run the command "
            f"on a login node of `{meta.cluster_name}`. If that is what `{here}` was called "
            f"before, write `{here}` as `cluster_name` into {paths.run_json}"
        )
        raise InputError(message)


def anothers_folder(folder: Path) -> str:
    """Return the folder's owner, to follow `it is` in a message; empty if it is this user.

    Only the file system is trusted: the content of another user's folder may be forged.
    """
    owner = folder.stat().st_uid
    return "" if owner == os.getuid() else f"uid {owner}'s"


def _has_one_owner_for_all(folder: Path) -> bool:
    """Check whether the file system shows one owner for all files."""
    try:
        with tempfile.TemporaryFile(dir=folder) as written:
            return os.fstat(written.fileno()).st_uid == folder.stat().st_uid
    except OSError:
        return False


def anothers_run(paths: RunPaths) -> str:
    """Return the run's owner, to follow `it is` in a message; empty if it is this user.

    A run belongs to the owner of its folder, which may have changed, and to the uid in its
    `run.json`: some file systems show one owner for all files.
    """
    meta, uid, owner = read_meta(paths), os.getuid(), paths.run_dir.stat().st_uid
    if uid in {meta.uid, owner}:
        return ""
    return f"{meta.submitted_by}'s (uid {owner if meta.uid is None else meta.uid})"


def with_doubts(
    runs: Mapping[Path, RunRecords], answers: Mapping[Path, Answer]
) -> dict[Path, Answer]:
    """Return the answers that prove nothing about their run, each with the reason.

    The cluster is asked for its name only if it knows none of a run's jobs (one known id and name
    is sufficient proof) and the records show a job that has not ended. So a look costs one call of
    squeue and one of sacct. This is a third call in the rare case, one for any number of runs.
    Reading slurm.conf instead would save the call, but its location depends on the site, and with
    `--conf-server` there is no file.
    """
    unseen = {d: run for d, run in runs.items() if _is_unseen(run, answers[d])}
    if not unseen:
        return {}
    try:
        settings = _settings()
    except SchedulerError as error:
        reason = f"cannot determine which cluster this machine belongs to: {error}"
        doubt = SourceProblem("scontrol", reason)
        return {run_dir: _doubted(answers[run_dir], doubt) for run_dir in unseen}
    doubts = {run_dir: _doubt(run.meta, settings) for run_dir, run in unseen.items()}
    return {d: _doubted(answers[d], doubt) for d, doubt in doubts.items() if doubt}


def _is_unseen(run: RunRecords, answer: Answer) -> bool:
    """Check whether Slurm knows no job of this run although one of them may be alive."""
    meta = run.meta
    is_own = meta.uid in {None, os.getuid()}
    is_known = bool(answer.tasks or answer.lagging)
    if (meta.cluster_name is None and is_own) or is_known or not answer.knows_the_living:
        return False
    slices = (part for stage in reconcile(run, answer).stages for part in stage.slices)
    return any(part.status == "unknown" and part.job_id is not None for part in slices)


def _doubt(meta: RunMeta, settings: Mapping[str, str]) -> SourceProblem | None:
    """Return why this cluster's answer proves nothing about a run; None if it does."""
    here = settings.get("ClusterName")
    if meta.cluster_name is not None and here is not None and here != meta.cluster_name:
        reason = (
            f"it has the jobs of {meta.run_id}, and this machine belongs to `{here}`; look on a "
            f"login node of `{meta.cluster_name}`"
        )
        return SourceProblem(f"cluster `{meta.cluster_name}`", reason)
    hides_jobs = "jobs" in settings.get("PrivateData", "").split(",")
    if hides_jobs and meta.uid not in {None, os.getuid()} and os.getuid() != 0:
        reason = (
            f"this cluster shows jobs to their owner alone, and those of {meta.run_id} are "
            f"{meta.submitted_by}'s"
        )
        return SourceProblem("squeue", reason)
    return None


def _doubted(answer: Answer, doubt: SourceProblem) -> Answer:
    return replace(answer, problems=(*answer.problems, doubt), knows_the_living=False)


def _settings() -> Mapping[str, str]:
    from slurm_jobs.schedulers.slurm import cluster_settings

    return cluster_settings()
