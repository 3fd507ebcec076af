"""Folders to drive `slurm-jobs` in; whatever a test leaves running is ended by pid."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.demo import copy_configs, small
from tests.end_to_end.driver import Driver

STAGES = Path(__file__).parent / "user_stages.py"


def end_processes(text: str) -> None:
    """End the processes with such a command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
            if text in line:
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Driver]:
    """A user's folder on this machine, with stages of the user's own in it."""
    (tmp_path / "user_stages.py").write_bytes(STAGES.read_bytes())
    yield Driver(tmp_path)
    end_processes(str(tmp_path))


@pytest.fixture(scope="module")
def local_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The same for a whole file, whose tests look at one run."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "user_stages.py").write_bytes(STAGES.read_bytes())
    yield Driver(folder)
    end_processes(str(folder))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The small demo, run on this machine to its end with nothing going wrong."""
    driver = Driver(tmp_path_factory.mktemp("undisturbed"))
    run_dir = driver.submit(copy_configs(driver), *small())
    status = driver.wait(run_dir)
    if status["status"] != "completed":
        pytest.fail(f"the undisturbed run {status['status']}: {status}")
    yield run_dir
    end_processes(str(driver.folder))


@pytest.fixture
def on_slurm(cluster: Cluster) -> Iterator[Driver]:
    """A folder of the ordinary user's on the test cluster; the queue is emptied afterwards."""
    folder = cluster.work_dir("sj")
    driver = Driver(folder, cluster)
    driver.write("user_stages.py", STAGES.read_text())
    yield driver
    end_processes(str(folder))
