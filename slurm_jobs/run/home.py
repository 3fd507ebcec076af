"""Where a run is at home: on which cluster its jobs are, and whose they are.

A file system may serve several clusters, and root may look at anybody's run. There
squeue answers as ever, with nothing, and that says nothing of the run's jobs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from slurm_jobs.common.errors import InputError, SchedulerError
from slurm_jobs.reconcile import reconcile
from slurm_jobs.run.model import RunMeta, RunRecords
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_meta
from slurm_jobs.schedulers.protocol import Answer


def refuse_elsewhere(paths: RunPaths, meta: RunMeta) -> None:
    """Raise where the run or its jobs are not this cluster's or this user's, for verbs that act.

    Raises:
        InputError: they are not.
        SchedulerError: Slurm does not say which cluster this is.
    """
    uid = os.getuid()
    owner = anothers_folder(paths.run_dir)
    if owner and not _has_one_owner_for_all(paths.run_dir):
        message = (
            f"the folder of run {meta.run_id} is {owner}, and you are uid {uid}: what it says "
            "would run as you. Let its owner type the same, or submit the spec as yours"
        )
        raise InputError(message)
    if meta.scheduler != "slurm":
        return
    if meta.uid is not None and meta.uid != uid:
        message = (
            f"run {meta.run_id} is {meta.submitted_by}'s (uid {meta.uid}), and you are uid {uid}; "
            f"its jobs are known and ended as theirs alone: type the same as {meta.submitted_by}. "
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
            f"machine belongs to `{here}`, whose Slurm knows nothing of its jobs: type the same on "
            f"a login node of `{meta.cluster_name}`. If that is what `{here}` was called before, "
            f"write `{here}` as `cluster_name` into {paths.run_json}"
        )
        raise InputError(message)


def anothers_folder(folder: Path) -> str:
    """Whose folder it is, if not this user's, in words that follow `it is`; empty if it is theirs.

    By the file system alone: what lies in a stranger's folder may say anything.
    """
    owner = folder.stat().st_uid
    return "" if owner == os.getuid() else f"uid {owner}'s"


def _has_one_owner_for_all(folder: Path) -> bool:
    """Whether what this user writes there is the folder's owner's, too, as on some file systems."""
    try:
        with tempfile.TemporaryFile(dir=folder) as written:
            return os.fstat(written.fileno()).st_uid == folder.stat().st_uid
    except OSError:
        return False


def anothers_run(paths: RunPaths) -> str:
    """Whose run it is, if not this user's, in words that follow `it is`; empty if it is theirs.

    Theirs it is who own its folder, which may have been handed over, or whose uid `run.json`
    has: some file systems show one owner for all.
    """
    meta, uid, owner = read_meta(paths), os.getuid(), paths.run_dir.stat().st_uid
    if uid in {meta.uid, owner}:
        return ""
    return f"{meta.submitted_by}'s (uid {owner if meta.uid is None else meta.uid})"


def with_doubts(
    runs: Mapping[Path, RunRecords], answers: Mapping[Path, Answer]
) -> dict[Path, Answer]:
    """The answers that prove nothing of the run that they are about, each with the reason.

    The cluster is asked for its name only where none of the jobs of a run is known to it (a job
    that is, by id and name, is proof enough) and one of them has not ended by its records. So
    to look stays one call of squeue and one of sacct; this is the third in the rare case, and
    one however many runs. To read slurm.conf instead would cost nobody a call, but where it lies
    (or that there is none, `--conf-server`) each site says for itself.
    """
    unseen = {d: run for d, run in runs.items() if _is_unseen(run, answers[d])}
    if not unseen:
        return {}
    try:
        settings = _settings()
    except SchedulerError as error:
        doubt = f"scontrol: to which cluster this machine belongs is not known: {error}"
        return {run_dir: _doubted(answers[run_dir], doubt) for run_dir in unseen}
    doubts = {run_dir: _doubt(run.meta, settings) for run_dir, run in unseen.items()}
    return {d: _doubted(answers[d], doubt) for d, doubt in doubts.items() if doubt}


def _is_unseen(run: RunRecords, answer: Answer) -> bool:
    """Whether nobody knows the jobs of this run, and one of them may live."""
    meta = run.meta
    is_own = meta.uid in {None, os.getuid()}
    is_known = bool(answer.tasks or answer.lagging)
    if (meta.cluster_name is None and is_own) or is_known or not answer.knows_the_living:
        return False
    slices = (part for stage in reconcile(run, answer).stages for part in stage.slices)
    return any(part.status == "unknown" and part.job_id is not None for part in slices)


def _doubt(meta: RunMeta, settings: Mapping[str, str]) -> str:
    """Why this cluster's silence proves nothing of a run; empty if it does."""
    here = settings.get("ClusterName")
    if meta.cluster_name is not None and here is not None and here != meta.cluster_name:
        return (
            f"cluster `{meta.cluster_name}`: it has the jobs of {meta.run_id}, and this machine "
            f"belongs to `{here}`; look on a login node of `{meta.cluster_name}`"
        )
    hides_jobs = "jobs" in settings.get("PrivateData", "").split(",")
    if hides_jobs and meta.uid not in {None, os.getuid()} and os.getuid() != 0:
        return (
            f"squeue: this cluster shows jobs to their owner alone, and those of {meta.run_id} are "
            f"{meta.submitted_by}'s"
        )
    return ""


def _doubted(answer: Answer, doubt: str) -> Answer:
    return replace(answer, problems=(*answer.problems, doubt), knows_the_living=False)


def _settings() -> Mapping[str, str]:
    from slurm_jobs.schedulers.slurm_questions import cluster_settings

    return cluster_settings()
