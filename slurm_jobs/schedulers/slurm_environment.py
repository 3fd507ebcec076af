"""Environments that Slurm's commands and new jobs start with. PURE.

Each of Slurm's commands reads options from variables, and a variable wins over a line of the batch
script. A filter in a shell's profile would hide jobs from squeue, and what a surrounding allocation
has set would become the request of a new job. So no command gets the shell's environment as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slurm_jobs.schedulers.surrounding_job import SITE_SETTINGS, foreign_to_new_jobs

_OPTION_PREFIXES = (
    *("SACCTMGR_", "SACCT_", "SALLOC_", "SBATCH_", "SCANCEL_", "SCONTROL_", "SINFO_", "SLURM_"),
    *("SLURMD_", "SQUEUE_", "SRUN_"),
)
_OF_QUERIES = {
    "SLURM_TIME_FORMAT": "%s",
    "SLURM_BITSTR_LEN": "0",  # lists of array elements are printed whole
}
SHELL_DEFAULTS: Mapping[str, str] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_WCKEY": "wckey",
}
"""The variables of sbatch that a shell may set, with their options: where jobs run, and on whose
account. All others contradict what a batch script says, or belong into a spec."""
_NOT_FOR_STEPS = frozenset(
    {
        *("SLURM_CLUSTERS", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_EXIT_ERROR"),
        *("SLURM_EXIT_IMMEDIATE", "SLURM_EXPORT_ENV", "SLURM_HOSTFILE", "SLURM_IMMEDIATE"),
        *("SLURM_LABELIO", "SLURM_OVERLAP", "SLURM_REMOTE_CWD", "SLURM_STDERRMODE"),
        *("SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_TEST_EXEC", "SLURM_THREADS"),
        "SLURM_WORKING_DIR",
    }
)
"""Variables that srun reads and sbatch never sets: in a job they come from a profile that was read
there, and would change how the ranks start."""


def query_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command that reads or changes Slurm's state.

    Which Slurm is meant, and how to log in to it, remains; no filter and no format does. Slurm
    takes an empty `SLURM_CLUSTERS` for the name of a cluster, so an empty setting is left out.
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
    """Return the options that the shell gives to jobs whose spec leaves them open."""
    return {o: variables[name] for name, o in SHELL_DEFAULTS.items() if variables.get(name)}


def ignored_by_sbatch(variables: Mapping[str, str], options: Collection[str]) -> frozenset[str]:
    """Return the SBATCH_... variables that jobs with these options do not get."""
    return frozenset(
        name
        for name in variables
        if name.startswith("SBATCH_")
        and (not variables[name] or SHELL_DEFAULTS.get(name, "") in {"", *options})
    )


def step_environment(variables: Mapping[str, str], promised: Collection[str]) -> dict[str, str]:
    """Return the environment of srun in a job, which its ranks inherit.

    What the job's own Slurm has set remains, but for an inherited CPU binding: it would pin every
    rank to the same few cores.

    Args:
        variables: of the batch process.
        promised: names that the spec's `environment` sets, which remain.
    """
    return {
        name: value
        for name, value in variables.items()
        if not (name in _NOT_FOR_STEPS or name.startswith(("SLURM_CPU_BIND", "SRUN_")))
        or name in promised
    }
