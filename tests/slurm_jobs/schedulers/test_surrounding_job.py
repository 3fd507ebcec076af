from pathlib import Path

import pytest

from slurm_jobs.schedulers.slurm_environment import (
    default_variables,
    foreign_to_new_jobs,
    marked_as_ours,
)
from slurm_jobs.shared.records import ParentStage
from slurm_jobs.worker.environment import RANK_VARIABLES
from slurm_jobs.worker.rank import rank_environment
from tests.contexts import make_context

OF_A_USER = {"HOME": "/home/me", "SLURM_JOBS_RUNS_DIR": "/runs", "SBATCH_ACCOUNT": "x"}
OF_A_TASK = ("SLURM_JOBS_LOCAL_TASK_ID", "SLURM_JOBS_ENTRY_POINT", "SLURM_JOBS_MATRIX_LR")


def test_all_that_a_rank_is_told_and_nothing_else_is_kept_from_the_jobs_that_it_submits(
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
def test_a_variable_that_the_user_set_is_told_to_all_jobs_and_a_default_to_none(name: str) -> None:
    ours = {"SLURM_JOBS_STAGE": "s", **marked_as_ours(DEFAULTS)}
    assert name in foreign_to_new_jobs(ours)
    for given in ({**ours, name: "4"}, {name: DEFAULTS[name]}):
        assert name not in foreign_to_new_jobs(given)


def test_outside_of_a_stage_torchs_variables_are_the_users_own() -> None:
    assert foreign_to_new_jobs({"RANK": "0", "MASTER_ADDR": "x"}) == frozenset()


def test_a_shell_with_some_of_an_allocations_variables_is_as_foreign_as_the_allocation() -> None:
    of_a_terminal = {"SLURM_NTASKS": "4", "SRUN_CPUS_PER_TASK": "2", "SLURMD_NODENAME": "n1"}
    assert foreign_to_new_jobs(of_a_terminal) == of_a_terminal.keys()
