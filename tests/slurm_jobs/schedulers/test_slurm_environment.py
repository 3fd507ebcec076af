"""Variables of the shell: which reach Slurm, a new job, srun and a rank."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError, SubmissionUnknownError
from slurm_jobs.formats.records.task_context import ParentStage
from slurm_jobs.schedulers.rank_variables import default_variables, marked_as_ours
from slurm_jobs.schedulers.slurm import SlurmScheduler
from slurm_jobs.schedulers.slurm_environment import (
    foreign_to_new_jobs,
    query_environment,
    sbatch_environment,
    step_environment,
)
from slurm_jobs.worker.job_identity import RANK_VARIABLES
from slurm_jobs.worker.rank_command import rank_environment
from tests.contexts import make_context
from tests.slurm_jobs.schedulers.commands_folder import commands
from tests.slurm_jobs.worker.orders import order as make_order
from tests.slurm_variables import NAMES

__all__ = ["commands"]

HOSTILE = dict.fromkeys(NAMES, "1") | {"HOME": "/home/me", "PATH": os.environ["PATH"]}
WHICH_SLURM = {"SLURM_CLUSTERS", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"}
READ_IN_JOBS = ("SBATCH_", "SLURM_", "SLURMD_", "SRUN_")
"""Of sbatch, and of srun and the supervisor in the job."""
WHOSE = {"account", "constraint", "partition", "qos", "reservation", "wckey"}


def _slurm_names(variables: Mapping[str, str]) -> set[str]:
    return set(NAMES) & set(variables)


def test_no_variable_of_the_shell_filters_or_formats_what_slurm_is_asked() -> None:
    variables = query_environment(HOSTILE)
    assert _slurm_names(variables) == WHICH_SLURM | {"SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT"}
    assert (variables["SLURM_TIME_FORMAT"], variables["SLURM_BITSTR_LEN"]) == ("%s", "0")
    assert variables["HOME"] == "/home/me"


def test_a_new_job_inherits_only_the_slurm_variables_of_place_and_account() -> None:
    variables = sbatch_environment(HOSTILE, options=())
    options = {name for name in _slurm_names(variables) if name.startswith(READ_IN_JOBS)}
    assert options == WHICH_SLURM | {f"SBATCH_{o.upper()}" for o in WHOSE}
    assert variables["HOME"] == "/home/me"


@pytest.mark.parametrize("name", sorted(WHICH_SLURM))
def test_an_empty_variable_names_no_slurm(name: str) -> None:
    assert name not in query_environment({name: ""})
    assert name not in sbatch_environment({name: ""}, options=())


@pytest.mark.parametrize("option", sorted(WHOSE))
def test_what_a_spec_says_wins_over_the_variable_of_that_option(option: str) -> None:
    name = f"SBATCH_{option.upper()}"
    assert name in sbatch_environment(HOSTILE, options=())
    assert name not in sbatch_environment(HOSTILE, options={option: "x"})
    assert name not in sbatch_environment({name: ""}, options=())


def test_srun_gets_what_the_job_itself_has_set() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_MEM_PER_NODE": "100"}
    hostile = {"SLURM_EXPORT_ENV": "NONE", "SRUN_EXPORT_ENV": "NONE", "SLURM_CPU_BIND_LIST": "0x1"}
    assert step_environment({**job, **hostile, "SLURM_HOSTFILE": "/x"}, ()) == job


# Of `man srun`, INPUT ENVIRONMENT VARIABLES, and the option table in src/srun/opt.c of Slurm 26.05.
_READ = """
    SLURMD_DEBUG SLURM_ACCOUNT SLURM_BCAST SLURM_BCAST_EXCLUDE SLURM_BURST_BUFFER SLURM_COMPRESS
    SLURM_CONSTRAINT SLURM_CORE_SPEC SLURM_DEBUG SLURM_DEBUG_FLAGS SLURM_DELAY_BOOT
    SLURM_DEPENDENCY SLURM_DISABLE_STATUS SLURM_EPILOG SLURM_EXACT SLURM_EXCLUSIVE
    SLURM_EXIT_ERROR SLURM_EXIT_IMMEDIATE SLURM_EXPORT_ENV SLURM_GPUS_PER_TASK SLURM_GRES
    SLURM_GRES_FLAGS SLURM_HOSTFILE SLURM_IMMEDIATE SLURM_KILL_BAD_EXIT SLURM_LABELIO
    SLURM_NETWORK SLURM_NO_KILL SLURM_OVERCOMMIT SLURM_OVERLAP SLURM_PARTITION SLURM_POWER
    SLURM_PROFILE SLURM_PROLOG SLURM_QOS SLURM_REMOTE_CWD SLURM_REQ_SWITCH SLURM_RESERVATION
    SLURM_RESV_PORTS SLURM_SEND_LIBS SLURM_SIGNAL SLURM_SPREAD_JOB SLURM_STEP_GRES
    SLURM_TASK_EPILOG SLURM_TASK_PROLOG SLURM_TEST_EXEC SLURM_THREADS SLURM_THREAD_SPEC
    SLURM_TIMELIMIT SLURM_UMASK SLURM_UNBUFFEREDIO SLURM_USE_MIN_NODES SLURM_WAIT
    SLURM_WAIT4SWITCH SLURM_WCKEY SLURM_WORKING_DIR SRUN_CONTAINER SRUN_ERROR SRUN_EXPORT_ENV
    SRUN_INPUT SRUN_OUTPUT SRUN_SEGMENT_SIZE
    SBATCH_EXPORT SBATCH_OUTPUT SBATCH_ARRAY_INX SBATCH_NO_REQUEUE SBATCH_TIMELIMIT
"""
_SET = """
    SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_NPROCS
    SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_CPUS_PER_TASK SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU
    SLURM_JOB_NODELIST SLURM_NODELIST SLURM_TASKS_PER_NODE SLURM_CPUS_ON_NODE SLURM_GPUS_PER_NODE
    SLURM_GPUS_ON_NODE SLURM_JOB_GPUS SLURM_JOB_PARTITION SLURM_JOB_ACCOUNT SLURM_JOB_QOS
    SLURM_ARRAY_TASK_ID SLURM_ARRAY_JOB_ID SLURM_CLUSTER_NAME SLURM_CONF SLURM_PROCID SLURM_LOCALID
    SLURM_NODEID SLURM_SUBMIT_DIR SLURM_RESTART_COUNT SLURM_TRES_PER_TASK SLURM_THREADS_PER_CORE
    SLURM_TOPOLOGY_ADDR SLURM_MPI_TYPE SLURMD_NODENAME SBATCH_ACCOUNT SBATCH_PARTITION HOME
"""
READ_BY_SRUN, SET_IN_JOBS = _READ.split(), _SET.split()


def test_srun_gets_no_variable_that_it_reads_and_no_job_has_from_slurm() -> None:
    variables = dict.fromkeys([*READ_BY_SRUN, *SET_IN_JOBS], "x")
    assert set(step_environment(variables, ())) == set(SET_IN_JOBS)
    assert set(step_environment(variables, READ_BY_SRUN)) == set(variables)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("SLURM_NETWORK", "network"),
        ("SLURM_OVERCOMMIT", "overcommit"),
        ("SLURM_PROFILE", "profile"),
        ("SLURM_CPU_FREQ_REQ", "cpu-freq"),
        ("SLURM_GPU_FREQ", "gpu-freq"),
        ("SLURM_ACCTG_FREQ", "acctg-freq"),
    ],
)
def test_srun_gets_the_variable_of_an_option_only_if_the_job_has_it(name: str, option: str) -> None:
    assert step_environment({name: "x"}, (), {option}) == {name: "x"}
    assert step_environment({name: "x"}, (), {"partition"}) == {}


def test_srun_keeps_a_variable_that_the_spec_sets() -> None:
    assert step_environment({"SRUN_INPUT": "none"}, {"SRUN_INPUT": "none"}) == {
        "SRUN_INPUT": "none"
    }


def _write_command(folder: Path, name: str, lines: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nenv > "{folder}/{name}.env"\n{lines}\n')
    path.chmod(0o755)


def _seen(folder: Path, name: str) -> set[str]:
    lines = (folder / f"{name}.env").read_text().splitlines()
    return {line.partition("=")[0] for line in lines}


def _submit(tmp_path: Path) -> str:
    order = make_order(tmp_path)
    (tmp_path / "jobs" / order.token).mkdir(parents=True)
    return SlurmScheduler().submit(order, {})


def test_sbatch_is_called_in_the_environment_of_a_new_job(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_OUTPUT", "SLURM_MEM_PER_CPU", "SRUN_EXPORT_ENV", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    _write_command(
        commands, "sbatch", "printf 'notice for job 99: caf\\351\\nSubmitted batch job 7\\n'"
    )
    assert _submit(tmp_path) == "7"
    assert _slurm_names(dict.fromkeys(_seen(commands, "sbatch"), "")) == {"SBATCH_ACCOUNT"}


@pytest.mark.parametrize(
    ("lines", "error", "words"),
    [
        ("echo 'sbatch: fatal: --mem and --mem-per-cpu' >&2; exit 1", SchedulerError, "refused"),
        ("printf 'sbatch: error: caf\\351\\n' >&2; exit 1", SchedulerError, "refused"),
        (
            "echo 'sbatch: error: retrying' >&2; kill -9 $$",
            SubmissionUnknownError,
            "may or may not",
        ),
        ("echo job 99", SubmissionUnknownError, "printed no job id"),
    ],
)
def test_only_what_sbatch_says_itself_is_a_refusal(
    commands: Path, tmp_path: Path, lines: str, error: type[SchedulerError], words: str
) -> None:
    _write_command(commands, "sbatch", lines)
    with pytest.raises(SchedulerError, match=words) as raised:
        _submit(tmp_path)
    assert type(raised.value) is error


OF_A_USER = {"HOME": "/home/me", "SLURM_JOBS_RUNS_DIR": "/runs", "SBATCH_ACCOUNT": "x"}
OF_A_TASK = ("SLURM_JOBS_LOCAL_TASK_ID", "SLURM_JOBS_ENTRY_POINT", "SLURM_JOBS_MATRIX_LR")


def test_jobs_submitted_by_a_rank_lose_exactly_the_variables_of_the_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ParentStage(stage="p-1", run="shell", output_dir=tmp_path, num_slices=1, origin="p")
    context = make_context("s", tmp_path, parents=(parent,))
    with monkeypatch.context() as patch:
        patch.setattr("os.environ", OF_A_USER | dict.fromkeys((*OF_A_TASK, *RANK_VARIABLES), "0"))
        told = rank_environment(context, {"cpus_per_task": 3}, tmp_path)
    assert {"RANK", "OMP_NUM_THREADS", "SLURM_JOBS_CONFIG", "SLURM_JOBS_P_OUTPUT_DIR"} <= set(told)
    assert told.keys() - foreign_to_new_jobs(told) == OF_A_USER.keys()


DEFAULTS = default_variables(
    (), num_threads=3, num_ranks=2, num_gpus=1, flight_prefix="/r/flight-", interface="ib0"
)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_variable_of_the_user_is_passed_to_all_jobs_but_a_default_is_not(name: str) -> None:
    ours = {"SLURM_JOBS_STAGE": "s", **marked_as_ours(DEFAULTS)}
    assert name in foreign_to_new_jobs(ours)
    for given in ({**ours, name: "4"}, {name: DEFAULTS[name]}):
        assert name not in foreign_to_new_jobs(given)


def test_outside_of_a_stage_torchs_variables_are_the_users_own() -> None:
    assert foreign_to_new_jobs({"RANK": "0", "MASTER_ADDR": "x"}) == frozenset()


def test_part_of_the_variables_of_an_allocation_is_as_foreign_as_all() -> None:
    of_a_terminal = {"SLURM_NTASKS": "4", "SRUN_CPUS_PER_TASK": "2", "SLURMD_NODENAME": "n1"}
    assert foreign_to_new_jobs(of_a_terminal) == of_a_terminal.keys()
