"""Asks the machine what it belongs to, and Slurm what it allows; reads, and changes nothing."""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from slurm_jobs.cluster import slurm_tables as tables
from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import SchedulerError
from slurm_jobs.schedulers.slurm_environment import shell_defaults

_QUESTIONS = {
    "config": ["scontrol", "show", "config"],
    "partitions": ["scontrol", "-a", "show", "partition", "-o"],
    "kinds": ["sinfo", "--all", "--noheader", "--exact", "-o", tables.SINFO_FORMAT],
    "queue": ["squeue", "--all", "--me", "--noheader", "--array", "-o", "%i"],
}
_ENFORCED = {"limits", "safe", "qos", "all"}
"""Words of AccountingStorageEnforce under which associations and QOS limit anybody."""


def probe_profile() -> ClusterProfile:
    """The profile of the cluster that this machine is a login node of.

    Raises:
        SchedulerError: there is no Slurm here.
    """
    if shutil.which("sbatch") is None:
        message = (
            "cluster: auto asks Slurm, but `sbatch` was not found on this machine; run on a login "
            "node, or say `cluster: local` (or --set cluster=local) to run the jobs here"
        )
        raise SchedulerError(message)
    return ClusterProfile()


def ask_limits(profile: ClusterProfile) -> ClusterLimits:
    """What the profile's cluster allows this user: six short questions, side by side.

    What could not be asked stands in `problems`; its limits count as none. Where the controller
    answered nothing at all, `unreachable` says why.
    """
    if profile.scheduler == "local":
        return NO_LIMITS
    answers, problems = _ask_all(_QUESTIONS)
    if not answers:
        return ClusterLimits(problems=problems, unreachable=problems[0])
    config = tables.parse_config(answers.get("config", ""))
    enforced = set(config.get("AccountingStorageEnforce", "").split(","))
    if _ENFORCED & enforced:
        more, unanswered = _ask_all(_accounting_questions(config.get("ClusterName", "")))
        answers, problems = {**answers, **more}, (*problems, *unanswered)
    kinds = tables.parse_kinds(answers.get("kinds", ""))
    partitions = tables.parse_partitions(answers.get("partitions", ""), kinds)
    return ClusterLimits(
        cluster_name=config.get("ClusterName") or None,
        max_array_size=_number(config, "MaxArraySize"),
        max_jobs=_number(config, "MaxJobCount"),
        partitions=partitions,
        enforces_qos=bool({"qos", "safe", "all"} & enforced),
        tmp_dir=config.get("TmpFS") or None,
        is_routed=config.get("JobSubmitPlugins", "(null)") not in {"", "(null)"},
        qos=tables.parse_qos(answers.get("qos", "")),
        associations=tables.parse_associations(answers.get("associations", "")),
        num_queued=len(answers.get("queue", "").splitlines()),
        shell_defaults=shell_defaults(os.environ),
        problems=problems,
    )


def _number(config: Mapping[str, str], key: str) -> int | None:
    text = config.get(key, "")
    return int(text) if text.isdecimal() else None


def _accounting_questions(cluster: str) -> dict[str, list[str]]:
    """`cluster`: one accounting database may serve several."""
    whose = [f"user={getpass.getuser()}", *([f"cluster={cluster}"] if cluster else [])]
    return {
        "associations": [
            *("sacctmgr", "-nP", "show", "assoc", "where", *whose),
            f"format={','.join(tables.ASSOCIATION_FIELDS)}",
        ],
        "qos": ["sacctmgr", "-nP", "show", "qos", f"format={','.join(tables.QOS_FIELDS)}"],
    }


def _ask_all(questions: Mapping[str, list[str]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The answers by name, and why there is none to a question."""
    from slurm_jobs.schedulers.slurm_questions import ask

    answers: dict[str, str] = {}
    problems: list[str] = []
    with ThreadPoolExecutor(max_workers=len(questions)) as pool:
        asked = {name: pool.submit(ask, command) for name, command in questions.items()}
        for name, future in asked.items():
            try:
                answers[name] = future.result()
            except SchedulerError as error:
                problems.append(f"the cluster's {name} could not be asked: {error}")
    return answers, tuple(problems)
