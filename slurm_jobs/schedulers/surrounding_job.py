"""Which variables tell a process of the job that it runs in: no other job may hear of them. PURE.

A stage may submit jobs of its own. What its scheduler, our supervisor and our
keepers have told it (who it is, where its output goes) is not true of those.
"""

from __future__ import annotations

from collections.abc import Mapping

_OWN_PREFIX = "SLURM_JOBS_"
_OF_THE_USER = frozenset({"SLURM_JOBS_RUNS_DIR"})
"""With our prefix, and yet a user's own setting."""
_OF_THE_SITE = frozenset(
    {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_EXIT_ERROR", "SLURM_TIME_FORMAT", "SLURM_UMASK"}
)
"""Settings of Slurm's programs that stand in every environment, in a job or not."""
_OF_A_RANK = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PYTHONUNBUFFERED",
    }
)
"""Without our prefix, what every rank of a stage is told."""
THREADS = "OMP_NUM_THREADS"
"""Set for a rank to its cores, unless its environment has it."""
_OWN_THREADS = "SLURM_JOBS_OMP_NUM_THREADS"
"""Says that the number of threads was ours, and none of the user's."""


def thread_variables(num_threads: int) -> dict[str, str]:
    """The number of threads of a rank whose environment has none."""
    return {THREADS: str(num_threads), _OWN_THREADS: str(num_threads)}


def of_surrounding_job(variables: Mapping[str, str], *, in_slurm_job: bool) -> frozenset[str]:
    """Names of those `variables` that tell of the job that this process runs in, if it does.

    Outside of a job of Slurm's, its variables are the user's own; SBATCH_... always are.
    """
    in_stage = "SLURM_JOBS_STAGE" in variables
    found = {name for name in variables if _tells_of_a_job(name, in_slurm_job=in_slurm_job)}
    if in_stage:
        found |= _OF_A_RANK & variables.keys()
    if in_stage and variables.get(THREADS) == variables.get(_OWN_THREADS, ""):
        found.add(THREADS)
    return frozenset(found)


def _tells_of_a_job(name: str, *, in_slurm_job: bool) -> bool:
    if name.startswith(_OWN_PREFIX):
        return name not in _OF_THE_USER
    return in_slurm_job and name.startswith(("SLURM_", "SLURMD_")) and name not in _OF_THE_SITE
