"""Which variables tell a process of the job that it runs in: no other job may hear of them. PURE.

A stage may submit jobs of its own. What its scheduler, our supervisor and our
keepers have told it (who it is, where its output goes) is not true of those.
"""

from __future__ import annotations

from collections.abc import Mapping

OWN_PREFIX = "SLURM_JOBS_"
_OF_THE_USER = frozenset({"SLURM_JOBS_RUNS_DIR"})
"""With our prefix, and yet a user's own setting."""
SITE_SETTINGS = frozenset(
    {
        *("SLURM_CLUSTERS", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
        *("SLURM_SACK_JWKS", "SLURM_SACK_KEY", "SLURM_SACK_SOCKET"),
    }
)
"""Which Slurm is meant and how to log in to it: settings that hold in a job and outside of it."""
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
_FAKE_CLOCK = "libfaketime"
"""A library that shifts the clock of a command. Jobs have the clock of their node. The library's
shared memory is gone when they start, and each of their programs would fail at once."""
_FAKE_CLOCK_PREFIXES = ("FAKETIME", "NO_FAKE_", "DONT_FAKE_")
THREADS = "OMP_NUM_THREADS"
"""Set for a rank to its cores, unless its environment has it."""
_OWN_THREADS = "SLURM_JOBS_OMP_NUM_THREADS"
"""Says that the number of threads was ours, and none of the user's."""


def thread_variables(num_threads: int) -> dict[str, str]:
    """The number of threads of a rank whose environment has none."""
    return {THREADS: str(num_threads), _OWN_THREADS: str(num_threads)}


def foreign_to_new_jobs(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the names of those `variables` that no new job may inherit.

    Slurm's own describe another job or allocation, or are options of srun. They count whether or
    not `SLURM_JOB_ID` is among them: a terminal that was opened from an allocation may have only
    some of them. The SBATCH_... variables are the user's own, see `slurm_environment`.
    """
    in_stage = "SLURM_JOBS_STAGE" in variables
    found = {
        name
        for name, value in variables.items()
        if _is_foreign(name) or (name in SITE_SETTINGS and not value)
    }
    if _FAKE_CLOCK in variables.get("LD_PRELOAD", ""):
        found |= {"LD_PRELOAD", *(n for n in variables if n.startswith(_FAKE_CLOCK_PREFIXES))}
    if in_stage:
        found |= _OF_A_RANK & variables.keys()
    if in_stage and variables.get(THREADS) == variables.get(_OWN_THREADS, ""):
        found.add(THREADS)
    return frozenset(found)


def _is_foreign(name: str) -> bool:
    if name.startswith(OWN_PREFIX):
        return name not in _OF_THE_USER
    return name.startswith(("SLURM_", "SLURMD_", "SRUN_")) and name not in SITE_SETTINGS
