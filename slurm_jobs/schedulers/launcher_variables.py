"""Variables that launchers of parallel programs set in the processes that they start. PURE.

A shell that was itself started by a launcher (a terminal of `srun --pty`, a function that submits
from torchrun or a Ray worker) has them. They describe the ranks and the rendezvous of that other
program. torch, accelerate, Lightning, DeepSpeed and MPI would believe them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_IDENTITY: Mapping[str, tuple[str, ...]] = {
    # torch/distributed/elastic/agent/server/local_elastic_agent.py
    "torchrun": (
        "TORCHELASTIC_",
        *("GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"),
    ),
    # accelerate/utils/launch.py; ray/train/torch/config.py sets the second for accelerate
    "accelerate": ("FORK_LAUNCHED", "ACCELERATE_TORCH_DEVICE"),
    # deepspeed/launcher/launch.py; lightning/fabric/strategies/launchers/subprocess_script.py
    "DeepSpeed": ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE"),
    "Lightning": ("NODE_RANK", "LT_CLI_USED"),
    # As `ray.remote` functions of Ray 2 see them
    "Ray": (
        *("RAY_CLIENT_MODE", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_ID", "RAY_NODE_ID"),
        *("RAY_LD_PRELOAD_ON_WORKERS", "RAY_RAYLET_PID", "SPT_NOENV"),
    ),
    # src/plugins/mpi of Slurm, MPICH's src/pmi, and Cray's PALS: PMI 1 and 2
    "PMI": (
        *("PMI_APPNUM", "PMI_CONTROL_FD", "PMI_CONTROL_PORT", "PMI_FD", "PMI_HOSTNAME", "PMI_ID"),
        *("PMI_JOBID", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PMI_PORT", "PMI_RANK"),
        *("PMI_SHARED_SECRET", "PMI_SIZE", "PMI_SPAWNED", "PMI_UNIVERSE_SIZE"),
        *("PALS_APID", "PALS_APINFO", "PALS_LOCAL_RANKID", "PALS_NODEID", "PALS_RANKID"),
    ),
    "PMIx": (
        *("PMIX_BFROP_BUFFER_TYPE", "PMIX_GDS_MODULE", "PMIX_HOSTNAME", "PMIX_ID"),
        *("PMIX_NAMESPACE", "PMIX_PARAM_FILE_PASSED", "PMIX_RANK", "PMIX_SECURITY_MODE"),
        *("PMIX_SERVER_", "PMIX_SYSTEM_TMPDIR", "PMIX_VERSION"),
    ),
    "Open MPI": (
        *("OMPI_APP_CTX_NUM_PROCS", "OMPI_ARGV", "OMPI_COMMAND", "OMPI_COMM_WORLD_"),
        *("OMPI_FILE_LOCATION", "OMPI_FIRST_RANKS", "OMPI_LOCAL_", "OMPI_NUM_APP_CTX"),
        *("OMPI_UNIVERSE_SIZE", "OMPI_WORLD_", "PRTE_LAUNCHED"),
        *("OMPI_MCA_ess", "OMPI_MCA_ess_base_", "OMPI_MCA_initial_wdir", "OMPI_MCA_orte_app_num"),
        *("OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_orte_ess_", "OMPI_MCA_orte_hnp_uri"),
        *("OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_launch", "OMPI_MCA_orte_num_nodes"),
        *("OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_precondition_transports"),
    ),
    # MPICH, Intel MPI, MVAPICH, and IBM's jsrun
    "Hydra": (
        *("HYDI_CONTROL_FD", "HYDRA_BSTRAP_", "HYDRA_LAUNCH_TYPE", "I_MPI_HYDRA_UUID"),
        *("I_MPI_INFO_", "I_MPI_INTERNAL_", "I_MPI_PIN_INFO", "I_MPI_PIN_MAPPING"),
        *("MPI_APPNUM", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "MPI_UNIVERSE_SIZE"),
    ),
    "MVAPICH": (
        *("MPIRUN_HOST", "MPIRUN_ID", "MPIRUN_NPROCS", "MPIRUN_PORT", "MPIRUN_RANK"),
        *("MPISPAWN_", "MV2_COMM_WORLD_", "MVP_COMM_WORLD_"),
    ),
    "jsrun": ("JSM_NAMESPACE_",),
}
"""Names by launcher; a name that ends in `_` is a prefix. Settings that share a prefix with them,
such as `OMPI_MCA_btl`, `PMIX_MCA_gds`, `I_MPI_FABRICS` and `RAY_ADDRESS`, are not among them,
because modules and users set these on purpose."""

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "accelerate": ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_"),
    "Lightning": ("LT_ACCELERATOR", "LT_DEVICES", "LT_NUM_NODES", "LT_PRECISION", "LT_STRATEGY"),
}
"""Names in which `accelerate launch` and `fabric run` pass their options to their processes. A
set-up line may set them on purpose."""

_OF_ONE_THREAD = frozenset({"TORCHELASTIC_RUN_ID", "RAY_RAYLET_PID"})
"""torchrun and Ray also set `OMP_NUM_THREADS=1` for their processes."""


def rank_identity(names: Collection[str]) -> frozenset[str]:
    """Return those of these variables that describe a rank of another launcher."""
    return _among(_IDENTITY, names)


def left_by_launchers(names: Collection[str]) -> frozenset[str]:
    """Return those of a shell's variables that a launcher set for it, and no job may inherit."""
    threads = {"OMP_NUM_THREADS"} if _OF_ONE_THREAD.intersection(names) else frozenset[str]()
    return rank_identity(names) | _among(_OPTIONS, names) | threads.intersection(names)


def _among(table: Mapping[str, tuple[str, ...]], names: Collection[str]) -> frozenset[str]:
    known = [name for group in table.values() for name in group]
    whole = frozenset(name for name in known if not name.endswith("_"))
    prefixes = tuple(name for name in known if name.endswith("_"))
    return frozenset(name for name in names if name in whole or name.startswith(prefixes))
