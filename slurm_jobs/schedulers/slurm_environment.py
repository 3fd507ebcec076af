"""Environments of Slurm's commands and of new jobs. PURE.

Slurm's commands read options from variables, and a variable overrides a line of the batch script. A
filter in a shell profile would hide jobs from squeue, and settings of a surrounding allocation
would apply to a new job. So no command gets the shell's environment unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slurm_jobs.schedulers.launcher_variables import left_by_launchers, rank_identity
from slurm_jobs.schedulers.rank_variables import OWN_PREFIX, set_for_a_rank

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
_FAKE_CLOCK = "libfaketime"
"""Library that shifts the clock of a command. Jobs use the clock of their node. Its shared memory
no longer exists when they start, so each of their programs would fail at once."""
_FAKE_CLOCK_PREFIXES = ("FAKETIME", "NO_FAKE_", "DONT_FAKE_")


def foreign_to_new_jobs(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the names of those `variables` that no new job may inherit.

    Slurm's own describe another job or allocation, or are options of srun. They count even without
    `SLURM_JOB_ID`: a terminal opened from an allocation may have only some of them. Other launchers
    leave theirs. The SBATCH_... variables belong to the user, see `sbatch_environment`.
    """
    in_stage = "SLURM_JOBS_STAGE" in variables
    names = {
        name
        for name, value in variables.items()
        if _is_foreign(name) or (name in SITE_SETTINGS and not value)
    }
    names |= left_by_launchers(variables.keys())
    if _FAKE_CLOCK in variables.get("LD_PRELOAD", ""):
        names |= {"LD_PRELOAD", *(n for n in variables if n.startswith(_FAKE_CLOCK_PREFIXES))}
    if in_stage:
        names |= set_for_a_rank(variables)
    return frozenset(names)


def _is_foreign(name: str) -> bool:
    if name.startswith(OWN_PREFIX):
        return name not in _OF_THE_USER
    return name.startswith(("SLURM_", "SLURMD_", "SRUN_")) and name not in SITE_SETTINGS


_OPTION_PREFIXES = (
    *("SACCTMGR_", "SACCT_", "SALLOC_", "SBATCH_", "SCANCEL_", "SCONTROL_", "SINFO_", "SLURM_"),
    *("SLURMD_", "SQUEUE_", "SRUN_"),
)
_OF_QUERIES = {
    "SLURM_TIME_FORMAT": "%s",
    "SLURM_BITSTR_LEN": "0",  # lists of array elements are printed in full
}
SHELL_DEFAULTS: Mapping[str, str] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_WCKEY": "wckey",
}
"""Variables of sbatch that a shell may set, with their options: the partition, account and similar.
All others contradict the batch script, or belong in a spec."""
_READ_BY_SRUN = """
    SLURMD_DEBUG SLURM_ACCOUNT SLURM_BCAST SLURM_BCAST_EXCLUDE SLURM_BURST_BUFFER SLURM_CLUSTERS
    SLURM_CLUSTER_CONSTRAINT SLURM_COMPRESS SLURM_CONSOLIDATE_SEGMENTS SLURM_CONSTRAINT
    SLURM_CORE_SPEC SLURM_DEBUG SLURM_DEBUG_FLAGS SLURM_DELAY_BOOT SLURM_DEPENDENCY
    SLURM_DISABLE_STATUS SLURM_EPILOG SLURM_EXACT SLURM_EXCLUSIVE SLURM_EXIT_ERROR
    SLURM_EXIT_IMMEDIATE SLURM_EXPORT_ENV SLURM_EXTERNAL_LAUNCHER SLURM_GPUS_PER_TASK SLURM_GRES
    SLURM_GRES_FLAGS SLURM_HOSTFILE SLURM_IMMEDIATE SLURM_KILL_BAD_EXIT SLURM_LABELIO
    SLURM_NCORES_PER_SOCKET SLURM_NO_KILL SLURM_NSOCKETS_PER_NODE SLURM_OVERLAP SLURM_PARTITION
    SLURM_PMI_KVS_NO_DUP_KEYS SLURM_POWER SLURM_PROLOG SLURM_QOS SLURM_REMOTE_CWD SLURM_REQ_SWITCH
    SLURM_RESERVATION SLURM_RESV_PORTS SLURM_SEND_LIBS SLURM_SIGNAL SLURM_SPREAD_JOB
    SLURM_SPREAD_SEGMENTS SLURM_SRUN_MULTI SLURM_SRUN_REDUCE_TASK_EXIT_MSG SLURM_STDERRMODE
    SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STEP_GRES SLURM_STEP_KILLED_MSG_NODE_ID
    SLURM_TASK_EPILOG SLURM_TASK_PROLOG SLURM_TEST_EXEC SLURM_THREADS SLURM_THREAD_SPEC
    SLURM_TIMELIMIT SLURM_UMASK SLURM_UNBUFFEREDIO SLURM_USE_MIN_NODES SLURM_WAIT
    SLURM_WAIT4SWITCH SLURM_WCKEY SLURM_WORKING_DIR
"""
_NOT_FOR_STEPS = frozenset(_READ_BY_SRUN.split())
"""Variables that srun reads (`man srun`, INPUT ENVIRONMENT VARIABLES, and its option table) and
that Slurm sets in no job. They come from a profile that was read in the job, and would change how
the ranks start. `SLURM_UMASK` is the submitting shell's; a job has its own. `SLURM_MPI_TYPE`
remains, because MPI modules set it on purpose."""
_OF_JOB_OPTIONS: Mapping[str, str] = {
    "SLURM_ACCTG_FREQ": "acctg-freq",
    "SLURM_CPU_FREQ_REQ": "cpu-freq",
    "SLURM_GPU_FREQ": "gpu-freq",
    "SLURM_NETWORK": "network",
    "SLURM_OVERCOMMIT": "overcommit",
    "SLURM_PROFILE": "profile",
}
"""Variables that srun reads, and that sbatch sets in a job with the option."""
_SET_BY_SBATCH = ("SBATCH_MEM_BIND", "SBATCH_CPU_BIND")


def query_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command that reads or changes Slurm's state.

    Variables that choose a Slurm installation or log in to it remain; filters and formats do not.
    Slurm takes an empty `SLURM_CLUSTERS` for a cluster name, so empty settings are left out.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if (name in SITE_SETTINGS and value) or not name.startswith(_OPTION_PREFIXES)
    }
    return {**kept, **_OF_QUERIES}


def sbatch_environment(variables: Mapping[str, str], options: Collection[str]) -> dict[str, str]:
    """Return the environment of sbatch, which its job inherits.

    Args:
        variables: of this process.
        options: long names of the options that the batch script has.
    """
    left_out = foreign_to_new_jobs(variables) | ignored_by_sbatch(variables, options)
    return {name: value for name, value in variables.items() if name not in left_out}


def shell_defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the shell sets for jobs whose spec leaves them open."""
    return {o: variables[name] for name, o in SHELL_DEFAULTS.items() if variables.get(name)}


def kept_variables(recorded: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the shell variables of a resume: those of its submission, unless set now.

    A variable that is set but empty removes the recorded one.

    Args:
        recorded: variables that applied to the run's earlier jobs.
        variables: of this process.
    """
    return {n: v for n, v in {**recorded, **variables}.items() if n in SHELL_DEFAULTS and v}


def variables_applied(
    variables: Mapping[str, str], options: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Return the stages whose jobs get the option of each SBATCH_... variable.

    Args:
        variables: of this process, or as they were at submission.
        options: long names of the batch script's options, by stage.
    """
    return {
        name: [s for s, given in options.items() if not ignored_by_sbatch({name: value}, given)]
        for name, value in sorted(variables.items())
        if name.startswith("SBATCH_")
    }


def ignored_by_sbatch(variables: Mapping[str, str], options: Collection[str]) -> frozenset[str]:
    """Return the SBATCH_... variables that jobs with these options do not get."""
    return frozenset(
        name
        for name in variables
        if name.startswith("SBATCH_")
        and (not variables[name] or SHELL_DEFAULTS.get(name, "") in {"", *options})
    )


def step_environment(
    variables: Mapping[str, str], promised: Collection[str], options: Collection[str] = ()
) -> dict[str, str]:
    """Return the environment of srun in a job, which its ranks inherit.

    The variables that the job's own Slurm has set remain, except an inherited CPU binding: it would
    pin every rank to the same few cores. srun adds the identity of each rank afterwards, so that
    of any other launcher is left out. SBATCH_... variables remain if they choose the partition and
    account of jobs that a rank may submit.

    Args:
        variables: of the batch process.
        promised: names that the spec's `environment` sets, which remain.
        options: long names of the options that the batch script has.
    """
    others = rank_identity(variables.keys())

    def is_foreign(name: str) -> bool:
        if name.startswith("SBATCH_"):
            return name not in SHELL_DEFAULTS and not name.startswith(_SET_BY_SBATCH)
        if name in _OF_JOB_OPTIONS:
            return _OF_JOB_OPTIONS[name] not in options
        return name in _NOT_FOR_STEPS | others or name.startswith(("SLURM_CPU_BIND", "SRUN_"))

    return {k: value for k, value in variables.items() if k in promised or not is_foreign(k)}
