"""Variables that a launcher of another program left in the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_jobs.schedulers.launcher_variables import left_by_launchers, rank_identity
from slurm_jobs.schedulers.slurm_environment import (
    foreign_to_new_jobs,
    sbatch_environment,
    step_environment,
)
from tests.launcher_variables import LEFT, OF_OUR_RANKS, SETTINGS

SETS = pytest.mark.parametrize("left", LEFT.values(), ids=list(LEFT))


@SETS
def test_no_job_inherits_what_a_launcher_told_its_own_ranks(left: Mapping[str, str]) -> None:
    shell = {**left, **SETTINGS}
    assert sbatch_environment(shell, options=()).keys() - OF_OUR_RANKS == SETTINGS.keys()
    assert foreign_to_new_jobs(shell) == left.keys() - OF_OUR_RANKS


@SETS
def test_no_step_of_srun_inherits_the_identity_of_another_rank(left: Mapping[str, str]) -> None:
    """A set-up line may read the variables from a file."""
    identity = rank_identity(left)
    assert identity
    kept = step_environment({**left, **SETTINGS}, promised=())
    assert not identity & kept.keys()
    assert SETTINGS.items() <= kept.items()


@SETS
def test_what_the_environment_of_a_spec_sets_stays(left: Mapping[str, str]) -> None:
    promised = left.keys() - {"SLURM_JOB_ID"}
    assert promised <= step_environment(left, promised).keys()


def test_a_number_of_threads_stays_unless_a_launcher_has_set_it() -> None:
    assert left_by_launchers({"OMP_NUM_THREADS", "ACCELERATE_LOG_LEVEL"}) == {
        "ACCELERATE_LOG_LEVEL"
    }
    assert "OMP_NUM_THREADS" in left_by_launchers(LEFT["torchrun"])


SAYS = "import os; print('\\n'.join(os.environ) if os.environ.get('RANK', '0') == '0' else '')"
_SETTINGS_OF_LAUNCHERS = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "KMP_AFFINITY", "KMP_BLOCKTIME"}
"""They change how a library works, not who a process is."""


@pytest.mark.parametrize(
    "command",
    [
        ["torch.distributed.run", "--standalone", "--nproc-per-node=2"],
        [
            *("accelerate.commands.launch", "--cpu", "--num_processes=2", "--num_machines=1"),
            *("--mixed_precision=no", "--dynamo_backend=no"),
        ],
    ],
    ids=["torchrun", "accelerate"],
)
def test_every_variable_that_the_installed_launcher_sets_is_known(
    tmp_path: Path, command: list[str]
) -> None:
    script = tmp_path / "says.py"
    script.write_text(SAYS)
    shell = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", *command, str(script)],
        env=shell,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    given = (
        {name for name in done.stdout.split() if name.isidentifier()} - shell.keys() - {"LC_CTYPE"}
    )
    assert given & left_by_launchers(given)
    left = foreign_to_new_jobs(dict.fromkeys(given, "1"))
    assert given - left - OF_OUR_RANKS - _SETTINGS_OF_LAUNCHERS <= {"OMP_NUM_THREADS"}
