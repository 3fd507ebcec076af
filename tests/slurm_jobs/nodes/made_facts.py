"""Facts of a site where all is well, to be changed in one place a test."""

from __future__ import annotations

from typing import Any

from slurm_jobs.formats.node_records.doctor_facts import (
    ClockFacts,
    FolderFacts,
    NodeFacts,
    ProgramFacts,
    TorchFacts,
)
from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.site_facts import ProgramAnswer, SlurmFacts, SpecFacts
from tests.slurm_jobs.schedulers.fake_slurm import QUEUE_HEADER

CONFIG = """Configuration data as of 1000000
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/slurmdbd
AuthInfo                = (null)
DependencyParameters    = (null)
JobRequeue              = 1
KillWait                = 30 sec
MaxArraySize            = 1001
MinJobAge               = 300 sec
PreemptMode             = OFF
PreemptType             = preempt/none
"""
PARTITIONS = (
    "PartitionName=cpu Default=YES GraceTime=0 PreemptMode=REQUEUE PriorityTier=1\n"
    "PartitionName=high Default=NO GraceTime=0 PreemptMode=OFF PriorityTier=10\n"
)
GB = 10**9


def spec(**changes: Any) -> SpecFacts:
    values: dict[str, Any] = {
        "stage": "train",
        "is_slurm": True,
        "trains": True,
        "gpus_per_node": 0,
        "partitions": ("cpu",),
        "lead_s": 120,
        "checkpoint_min": 30.0,
        "may_requeue": True,
        "num_slices": 1,
        "pythons": (),
    }
    return SpecFacts(**{**values, **changes})


def slurm(
    config: str = CONFIG, *, settings: ProgramAnswer | None = None, **answers: ProgramAnswer
) -> SlurmFacts:
    usual = {
        "version": ProgramAnswer(text="slurm 22.05.8\n"),
        "config": settings or ProgramAnswer(text=config),
        "partitions": ProgramAnswer(text=PARTITIONS),
        "nodes": ProgramAnswer(text="cpu|up|2|idle|cpu*\nhigh|up|2|idle|high\n"),
        "queue": ProgramAnswer(text=QUEUE_HEADER),
        "accounts": ProgramAnswer(text=""),
        "association": ProgramAnswer(text="lab|\n"),
    }
    return SlurmFacts(missing=(), answers={**usual, **answers}, asked_unix_s=(1000000.2, 1000000.4))


def node(**changes: Any) -> NodeFacts:
    values: dict[str, Any] = {
        "node": "n1",
        "rank": 0,
        "host": "n1",
        "python": "3.11.7",
        "executable": "/env/bin/python",
        "packages": {"torch": "2.13.0+cu126"},
        "torch": TorchFacts(version="2.13.0+cu126", cuda="12.6", nccl="2.27.3", import_s=5.0),
        "gpus": (),
        "gpus_reason": "no GPU: there is no nvidia-smi on this node",
        "driver": "",
        "local": FolderFacts(
            path="/nvme/slurm-jobs-7/n1", kind="xfs", free_bytes=900 * GB, total_bytes=1000 * GB
        ),
        "shared": FolderFacts(path="/work/runs", kind="nfs4", free_bytes=GB, total_bytes=GB),
        "programs": {
            "scontrol": ProgramFacts(path="/usr/bin/scontrol"),
            "srun": ProgramFacts(path="/usr/bin/srun"),
        },
        "limits": {
            "open_files": 65536,
            "locked_bytes": None,
            "shm_bytes": 64 * GB,
            "memory_bytes": None,
        },
        "cores": None,
        "num_cores": 8,
        "has_infiniband": False,
        "environment": {},
        "hub_s": 0.2,
        "hub_problem": "",
        "login": ClockFacts(least_s=-0.01, most_s=0.02),
        "login_reason": "",
        "login_file_s": 0.1,
        "first": None,
        "first_reason": "the job has one node",
        "file_s": None,
        "signalled": True,
    }
    return NodeFacts(**{**values, **changes})


def named(checks: list[Check], name: str) -> Check:
    """The only check of that name."""
    (found,) = [check for check in checks if check.name == name]
    return found
