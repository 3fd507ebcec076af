"""What is too long for the kernel reaches a rank all the same; the kernel is the real one."""

import dataclasses
import errno
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import read_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.launch import RanksEnd, read_end
from slurm_jobs.worker.rank_command import MAX_WORD_BYTES, rank_command, rank_environment
from tests.contexts import make_context
from tests.slurm_jobs.worker.orders import start_keeper

PRINTS_CONFIG = 'cat "${SLURM_JOBS_CONFIG_FILE:-/dev/stdin}" <<< "$SLURM_JOBS_CONFIG"'


def order(shell: str | None) -> dict[str, Any]:
    return {"shell": shell, "start_script": "start.py", "cpus_per_task": 1, "nsight": False}


def said(context: TaskContext, shell: str) -> str:
    """What a shell stage prints."""
    path = context.task_dir / f"rank-{context.rank:05d}.context.json"
    return subprocess.check_output(
        rank_command(order(shell), path),
        env=rank_environment(context, order(shell), path),
        text=True,
    )


@pytest.mark.parametrize("surplus", [-1, 0, 100_000])
def test_a_shell_command_of_any_length_runs(tmp_path: Path, surplus: int) -> None:
    context = make_context("s", tmp_path, rank=3)
    end = "; echo it ran"
    shell = "echo hello > /dev/null #".ljust(MAX_WORD_BYTES + surplus - len(end) - 1, "x")
    assert said(context, f"{shell}\n{end[2:]}  ") == "it ran\n"
    files = {path.name for path in context.task_dir.iterdir()}
    assert files == (set() if surplus < 0 else {"rank-00003.shell.sh"})


@pytest.mark.parametrize("surplus", [-1, 0, 100_000])
def test_a_config_of_any_length_reaches_a_shell(tmp_path: Path, surplus: int) -> None:
    overhead = len('SLURM_JOBS_CONFIG={"x": ""}')
    config = {"x": "y" * (MAX_WORD_BYTES + surplus - overhead)}
    context = make_context("s", tmp_path, rank=3, config=config)
    assert json.loads(said(context, PRINTS_CONFIG)) == config
    environment = rank_environment(context, order(""), tmp_path / "rank-00003.context.json")
    assert ("SLURM_JOBS_CONFIG" in environment) is (surplus < 0)
    assert ("SLURM_JOBS_CONFIG_FILE" in environment) is (surplus >= 0)


def kept(tmp_path: Path, before: str) -> RanksEnd:
    """How a rank ends whose keeper runs `before` first."""
    context = make_context("s", tmp_path / "run")
    context = dataclasses.replace(context, node_local_dir=tmp_path)
    process = start_keeper(context, {"shell": "true"}, before=before)
    return read_end(context.task_dir, 1, [process.wait()])


def test_a_rank_with_too_long_an_environment_says_so_and_is_not_retried(
    tmp_path: Path,
) -> None:
    grown = "import os\nfor i in range(200): os.environ[f'X{i}'] = 'x' * 100_000"
    end = kept(tmp_path, grown)
    assert end.outcome == "failed"
    assert (
        "StageConfigError: the environment of this stage is larger than Linux allows" in end.reason
    )
    assert not end.retryable


def test_a_rank_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    broken = (
        "import subprocess\n"
        "def no(*_, **__): raise OSError(11, 'Resource temporarily unavailable')\n"
        "subprocess.Popen = no"
    )
    end = kept(tmp_path, broken)
    assert end.reason == (
        f"rank 0 on n1: BlockingIOError: [Errno {errno.EAGAIN}] Resource temporarily unavailable"
    )
    assert end.retryable
    assert read_json(tmp_path / "run" / "task" / "rank-00000.exit.json")["exit_code"] == 1


@pytest.mark.parametrize(
    ("given", "num_ranks", "expected"),
    [
        ({}, 1, {"OMP_NUM_THREADS": "2", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        (
            {"OMP_NUM_THREADS": "7", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"},
            2,
            {
                "OMP_NUM_THREADS": "7",
                "GLOO_SOCKET_IFNAME": "lo",
                "TORCH_FR_BUFFER_SIZE": "2000",
                "TORCH_FR_DUMP_TEMP_FILE": "{task_dir}/flight-",
                "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            },
        ),
        (
            {
                "GLOO_SOCKET_IFNAME": "ib0",
                "PYTORCH_ALLOC_CONF": "x",
                "TORCH_NCCL_TRACE_BUFFER_SIZE": "9",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine",
                "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
            },
            2,
            {
                "OMP_NUM_THREADS": "2",
                "GLOO_SOCKET_IFNAME": "ib0",
                "PYTORCH_ALLOC_CONF": "x",
                "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
            },
        ),
    ],
)
def test_a_rank_gets_what_torch_needs_unless_the_environment_has_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    num_ranks: int,
    expected: dict[str, str],
) -> None:
    names = (
        *("OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF", "GLOO_SOCKET_IFNAME", "TORCH_FR_BUFFER_SIZE"),
        *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    )
    monkeypatch.setattr("os.environ", given)
    context = make_context("s", tmp_path, num_ranks=num_ranks, main_addr="127.0.0.1")
    order = {"cpus_per_task": 2, "num_gpus": 1, "second_addr": None}
    environment = rank_environment(context, order, tmp_path / "rank-00000.context.json")
    found = {name: environment[name] for name in names if name in environment}
    assert found == {n: v.format(task_dir=context.task_dir) for n, v in expected.items()}
