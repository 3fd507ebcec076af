"""Two ranks find each other, whatever another launcher left in the shell that submits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import COMMAND, Driver, words_of
from tests.launcher_variables import LEFT, OF_OUR_RANKS, SETTINGS

STAGE = '''
"""A training as small as it can be."""

import datetime
import os


def run(config, context):
    import torch
    import torch.distributed as dist
    from accelerate import Accelerator

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    accelerator = Accelerator(cpu=True)
    return {
        "sum": total.item(),
        "ranks": [dist.get_rank(), dist.get_world_size()],
        "accelerate": [
            accelerator.num_processes,
            accelerator.mixed_precision,
            accelerator.distributed_type.value,
            accelerator.device.type,
        ],
        "threads": os.environ["OMP_NUM_THREADS"],
        "left": [name for name in config["names"] if name in os.environ],
        "mine": os.environ["LT_STRATEGY"],
    }
'''
SPEC = """\
name: two
cluster: local
environment: {{LT_STRATEGY: ddp}}
stages:
  a:
    run: "two_ranks:run"
    config: {{names: {names}}}
    resources: {{tasks_per_node: 2, cpus_per_task: 2, timeout_min: 3}}
"""


@pytest.mark.parametrize(
    "launcher",
    [name if name == "torchrun" else pytest.param(name, marks=pytest.mark.slow) for name in LEFT],
)
def test_two_ranks_train_under_the_variables_of_another_launcher(
    local: Driver, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    for name, value in {**LEFT[launcher], **SETTINGS}.items():
        monkeypatch.setenv(name, value)
    names = sorted(LEFT[launcher].keys() - OF_OUR_RANKS - {"OMP_NUM_THREADS", "LT_STRATEGY"})
    local.write("two_ranks.py", STAGE)
    local.write("spec.yaml", SPEC.format(names=json.dumps(names)))
    submitted = local.run("submit", "spec.yaml")
    assert f"variables of this shell that jobs do not get: {names[0]}" in submitted.stdout
    run_dir = next((local.folder / "runs").iterdir())
    assert words_of(local.wait(run_dir)) == {"a": "completed"}
    (record,) = (run_dir / "completions/a").iterdir()
    result = json.loads(record.read_text())["result"]
    assert result == {
        "sum": 3.0,
        "ranks": [0, 2],
        "accelerate": [2, "no", "MULTI_CPU", "cpu"],
        "threads": "2",
        "left": [],
        "mine": "ddp",
    }


PMI = """\
name: pmi
cluster: auto
environment: {SLURM_MPI_TYPE: pmi2}
stages:
  a:
    shell: 'echo "$PMI_RANK of $PMI_SIZE in $SLURM_NTASKS ($RANK)" > said-$RANK; env > env-$RANK'
    resources: {tasks_per_node: 2, timeout_min: 2, slurm: {partition: cpu}}
"""


@pytest.mark.cluster
def test_what_srun_tells_our_own_ranks_stays(cluster: Cluster, on_slurm: Driver) -> None:
    shell: Mapping[str, str] = {**LEFT["srun"], **LEFT["open_mpi"], **SETTINGS}
    on_slurm.write("spec.yaml", PMI)
    done = cluster.run_as_user(
        [*COMMAND, "submit", "spec.yaml", "--json"], cwd=on_slurm.folder, env=dict(shell)
    )
    run_dir = Path(json.loads(done.stdout)["run_dir"])
    assert words_of(on_slurm.wait(run_dir)) == {"a": "completed"}
    for rank in range(2):
        said = (on_slurm.folder / f"said-{rank}").read_text()
        assert said == f"{rank} of 2 in 2 ({rank})\n"
        given = (on_slurm.folder / f"env-{rank}").read_text().splitlines()
        assert not [line for line in given if line.startswith(("OMPI_COMM_WORLD_", "PMIX_RANK"))]
        assert {f"{name}={value}" for name, value in SETTINGS.items()} <= set(given)
