"""Variables that describe the surrounding job, and that no new job may inherit. PURE.

A stage may submit jobs of its own. Variables from its scheduler, our supervisor and our rank
keepers (identity, output folders) do not apply to those jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

OWN_PREFIX = "SLURM_JOBS_"
_OF_THE_USER = frozenset({"SLURM_JOBS_RUNS_DIR"})
"""Variables with our prefix that are nevertheless a user's settings."""
SITE_SETTINGS = frozenset(
    {
        *("SLURM_CLUSTERS", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
        *("SLURM_SACK_JWKS", "SLURM_SACK_KEY", "SLURM_SACK_SOCKET"),
    }
)
"""Variables that choose a Slurm installation and log in to it; they hold inside and outside a job.
"""
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
"""Variables without our prefix that every rank of a stage gets."""
_FAKE_CLOCK = "libfaketime"
"""Library that shifts the clock of a command. Jobs use the clock of their node. Its shared memory
no longer exists when they start, so each of their programs would fail at once."""
_FAKE_CLOCK_PREFIXES = ("FAKETIME", "NO_FAKE_", "DONT_FAKE_")
_OLD_NAMES = {
    "PYTORCH_ALLOC_CONF": ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
    "TORCH_FR_BUFFER_SIZE": ("TORCH_NCCL_TRACE_BUFFER_SIZE",),
    "TORCH_FR_DUMP_TEMP_FILE": ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE",),
}
"""Names that torch 2.11 to 2.14 still read where the new one is not set."""
_DEFAULTS = (
    *("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    *_OLD_NAMES,
)
"""Variables set for a rank unless its environment has them, each together with a `SLURM_JOBS_` copy
that marks it as ours, not the user's."""


def default_variables(
    taken: Collection[str],
    *,
    num_threads: int,
    num_ranks: int,
    num_gpus: int,
    flight_prefix: str,
    interface: str | None,
) -> dict[str, str]:
    """Return the variables of a rank that its environment leaves open.

    Args:
        taken: names that the environment has.
        num_threads: cores of a rank.
        num_ranks: of the stage; collectives need two.
        num_gpus: of a node.
        flight_prefix: start of the path of torch's flight recorder; the rank's number follows.
        interface: network interface to the other ranks; None if unknown.
    """
    wanted = {"OMP_NUM_THREADS": str(num_threads)}
    if num_gpus:  # growing segments leave less memory unusable between tensors of many sizes
        wanted["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    if num_ranks > 1:
        wanted |= {
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_FR_DUMP_TEMP_FILE": flight_prefix,
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        }
        if interface is not None:  # else gloo binds to the host name's address
            wanted["GLOO_SOCKET_IFNAME"] = interface
    return {
        name: value
        for name, value in wanted.items()
        if not {name, *_OLD_NAMES.get(name, ())} & {*taken}
    }


def marked_as_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """Return default variables, each next to a `SLURM_JOBS_` copy that marks it as ours."""
    marks = {f"{OWN_PREFIX}{name}": value for name, value in variables.items()}
    return {**variables, **marks}


def foreign_to_new_jobs(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the names of those `variables` that no new job may inherit.

    Slurm's own describe another job or allocation, or are options of srun. They count even without
    `SLURM_JOB_ID`: a terminal opened from an allocation may have only some of them. The SBATCH_...
    variables belong to the user, see `slurm_environment`.
    """
    in_stage = "SLURM_JOBS_STAGE" in variables
    names = {
        name
        for name, value in variables.items()
        if _is_foreign(name) or (name in SITE_SETTINGS and not value)
    }
    if _FAKE_CLOCK in variables.get("LD_PRELOAD", ""):
        names |= {"LD_PRELOAD", *(n for n in variables if n.startswith(_FAKE_CLOCK_PREFIXES))}
    if in_stage:
        names |= _OF_A_RANK & variables.keys()
        names |= {
            name
            for name in _DEFAULTS
            if name in variables and variables[name] == variables.get(f"{OWN_PREFIX}{name}")
        }
    return frozenset(names)


def _is_foreign(name: str) -> bool:
    if name.startswith(OWN_PREFIX):
        return name not in _OF_THE_USER
    return name.startswith(("SLURM_", "SLURMD_", "SRUN_")) and name not in SITE_SETTINGS
