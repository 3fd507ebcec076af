"""Asks the machine what it belongs to, for `cluster: auto`."""

from __future__ import annotations

import shutil

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import SchedulerError


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
