"""The wrapper of srun in containers.md, with a stand-in for the container program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.end_to_end.driver import Driver

pytestmark = pytest.mark.cluster

CONTAINER = 'apptainer exec --nv --bind "$WORK" "$WORK/images/train.sif"'
SPEC = """
name: inside
cluster: auto
stages:
  where:
    shell: echo "rank $RANK of $WORLD_SIZE is ${STAND_IN:-outside}"
    setup: ['export PATH="$PWD/container-bin:$PATH"']
    resources: {nodes: 2, tasks_per_node: 2, timeout_min: 5}
"""


def _wrapper() -> str:
    page = ROOT / "docs/guides/clusters/containers.md"
    (script,) = (b.text for b in blocks(page) if "options=()" in b.lines)
    assert CONTAINER in script
    return script.replace(CONTAINER, "env STAND_IN=inside")


def test_ranks_begin_where_the_wrapper_of_srun_puts_them(on_slurm: Driver) -> None:
    on_slurm.write("spec.yaml", SPEC)
    on_slurm.write("container-bin/srun", _wrapper())
    wrapper: Path = on_slurm.folder / "container-bin/srun"
    wrapper.chmod(0o755)
    run_dir = on_slurm.submit("spec.yaml")
    assert on_slurm.wait(run_dir)["status"] == "completed"
    logs = sorted((run_dir / "logs/where").glob("s00000.a0001.rank-*.log"))
    assert [log.read_text() for log in logs] == [f"rank {r} of 4 is inside\n" for r in range(4)]
