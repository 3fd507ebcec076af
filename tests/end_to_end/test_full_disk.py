"""A disk that fills while jobs work on it, on a real Slurm."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver

pytestmark = pytest.mark.cluster

SPEC = """
name: full
cluster: auto
runs_dir: {disk}
stages:
  a:
    shell: |
      [ -e {disk}/was-full ] && exit
      touch {disk}/was-full
      cat /dev/zero > {disk}/ballast || true
    resources: {{slurm: {{partition: cpu}}, tasks_per_node: {ranks}}}
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_disk_is_explained_in_the_jobs_log_and_resume_continues(
    on_slurm: Driver, cluster: Cluster, ranks: int
) -> None:
    disk = cluster.small_disk(size_mb=64)
    run_dir = on_slurm.submit_text(SPEC.format(disk=disk, ranks=ranks))
    assert on_slurm.wait(run_dir)["status"] == "failed"
    (log,) = (run_dir / "logs/a").glob("slurm-*.log")
    said = log.read_text()
    assert "Traceback" not in said
    assert f"{run_dir}/" in said
    assert "No space left on device; free space on its file system" in said
    (disk / "ballast").unlink()
    on_slurm.run("resume", str(run_dir))
    assert on_slurm.wait(run_dir)["status"] == "completed"
