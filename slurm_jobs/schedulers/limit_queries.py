"""Queries of this machine and of Slurm for cluster facts and limits; they change nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.base.machine import user_name
from slurm_jobs.cluster import slurm_output
from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.schedulers.slurm_environment import shell_defaults
from slurm_jobs.spec.profile import ClusterProfile

_QUESTIONS = {
    "config": ["scontrol", "show", "config"],
    "partitions": ["scontrol", "-a", "show", "partition", "-o"],
    "node types": ["sinfo", "--all", "--noheader", "--exact", "-o", slurm_output.SINFO_FORMAT],
    "queue": ["squeue", "--all", "--me", "--noheader", "--array", "-o", "%i"],
}
_ENFORCED = {"limits", "safe", "qos", "all"}
"""Words of AccountingStorageEnforce that make Slurm enforce associations and QOS."""


def probe_profile() -> ClusterProfile:
    """Return the profile of the cluster that this login node belongs to.

    Raises:
        SchedulerError: Slurm is not installed here.
    """
    if shutil.which("sbatch") is None:
        message = (
            "cluster: auto asks Slurm, but `sbatch` was not found on this machine; run on a login "
            "node, or set `cluster: local` (or --set cluster=local) to run the jobs here"
        )
        raise SchedulerError(message)
    return ClusterProfile()


def ask_limits(profile: ClusterProfile) -> ClusterLimits:
    """Return this user's limits on the profile's cluster, from six queries run in parallel.

    A query that fails is listed in `problems`, and its limits count as none. If the controller
    answers no query, `unreachable` holds the reason.
    """
    if profile.scheduler == "local":
        return NO_LIMITS
    answers, problems = _ask_all(_QUESTIONS)
    if not answers:
        return ClusterLimits(problems=problems, unreachable=problems[0])
    config = slurm_output.parse_config(answers.get("config", ""))
    enforced = set(config.get("AccountingStorageEnforce", "").split(","))
    if _ENFORCED & enforced:
        more, unanswered = _ask_all(_accounting_questions(config.get("ClusterName", "")))
        answers, problems = {**answers, **more}, (*problems, *unanswered)
    kinds = slurm_output.parse_kinds(answers.get("node types", ""))
    partitions = slurm_output.parse_partitions(answers.get("partitions", ""), kinds)
    return ClusterLimits(
        cluster_name=config.get("ClusterName") or None,
        max_array_size=_number(config, "MaxArraySize"),
        max_jobs=_number(config, "MaxJobCount"),
        partitions=partitions,
        enforces_qos=bool({"qos", "safe", "all"} & enforced),
        tmp_dir=config.get("TmpFS") or None,
        is_routed=config.get("JobSubmitPlugins", "(null)") not in {"", "(null)"},
        qos=slurm_output.parse_qos(answers.get("qos", "")),
        associations=slurm_output.parse_associations(answers.get("associations", "")),
        num_queued=len(answers.get("queue", "").splitlines()),
        shell_defaults=shell_defaults(os.environ),
        problems=problems,
    )


def _number(config: Mapping[str, str], key: str) -> int | None:
    text = config.get(key, "")
    return int(text) if text.isdecimal() else None


def _accounting_questions(cluster: str) -> dict[str, list[str]]:
    """Return the accounting queries for `cluster`: one database may serve several clusters."""
    whose = [f"user={user_name()}", *([f"cluster={cluster}"] if cluster else [])]
    return {
        "associations": [
            *("sacctmgr", "-nP", "show", "assoc", "where", *whose),
            f"format={','.join(slurm_output.ASSOCIATION_FIELDS)}",
        ],
        "qos": ["sacctmgr", "-nP", "show", "qos", f"format={','.join(slurm_output.QOS_FIELDS)}"],
    }


def _ask_all(questions: Mapping[str, list[str]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the answers by name, and the problems of the queries that failed."""
    from slurm_jobs.schedulers.slurm_commands import ask

    answers: dict[str, str] = {}
    problems: list[str] = []
    with ThreadPoolExecutor(max_workers=len(questions)) as pool:
        asked = {name: pool.submit(ask, command) for name, command in questions.items()}
        for name, future in asked.items():
            try:
                answers[name] = future.result()
            except SchedulerError as error:
                problems.append(f"Slurm did not answer a query for its {name}: {error}")
    return answers, tuple(problems)
