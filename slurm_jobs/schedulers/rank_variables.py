"""Variables that we set for a rank, such as `OMP_NUM_THREADS`, and how we recognise them. PURE."""

from __future__ import annotations

from collections.abc import Collection, Mapping

# A stage may submit jobs of its own. Variables from its scheduler, our supervisor and our rank
# keepers (identity, output folders) do not apply to those jobs.
OWN_PREFIX = "SLURM_JOBS_"
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


def set_for_a_rank(variables: Mapping[str, str]) -> set[str]:
    """Return the names of those `variables`, of a rank's environment, that we set for the rank."""
    names = _OF_A_RANK & variables.keys()
    names |= {
        name
        for name in _DEFAULTS
        if name in variables and variables[name] == variables.get(f"{OWN_PREFIX}{name}")
    }
    return {*names}
