"""The built wheel, installed without torch, outside the checkout: the login node's side alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.demo import data_set, require_same, small
from tests.end_to_end.driver import Driver, words_of

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def login_python() -> Iterator[Path]:
    """Python of an environment that holds the wheel and what it needs, and no torch.

    It lies where the cluster's ordinary user can read it, unlike pytest's own folders.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-jobs-login-", dir="/var/tmp"))
    folder.chmod(0o755)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder / "dist", CHECKOUT], check=True)
    (wheel,) = (folder / "dist").glob("slurm_jobs-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    pip[0] = str(python)
    subprocess.run([*pip, "install", "-c", CHECKOUT / "constraints.txt", wheel], check=True)
    yield python
    shutil.rmtree(folder)


@pytest.mark.slow
def test_login_install_is_light_and_has_everything_it_ships(
    login_python: Path, tmp_path: Path
) -> None:
    found = subprocess.check_output([login_python, "-m", "pip", "list"], text=True)
    assert "torch" not in found
    assert "transformers" not in found
    login = Driver(tmp_path, command=(str(login_python.parent / "slurm-jobs"),))
    assert "configs/demo.yaml" in login.run("init", "--local", "--recipe", "demo").stdout
    assert "no problems found" in login.run("check", "configs/demo.yaml").stdout
    assert "kept" in login.run("init", "--local", "--recipe", "demo").stdout


@pytest.mark.slow
@pytest.mark.cluster
def test_two_environments_one_submits_from_the_wheel_the_other_trains(
    login_python: Path, cluster: Cluster, user_dir: Path, undisturbed: Path
) -> None:
    login = Driver(user_dir, cluster, command=(str(login_python.parent / "slurm-jobs"),))
    login.run("init", "--recipe", "demo")
    profile = user_dir / f"configs/clusters/{cluster.config.cluster_name}.yaml"
    profile.write_text(profile.read_text() + f"python: {cluster.python}\n")
    run_dir = login.submit(
        "configs/demo.yaml",
        *small(num_steps=2),
    )
    status = login.wait(run_dir)
    assert set(words_of(status).values()) == {"completed"}, status
    require_same(data_set(run_dir), data_set(undisturbed))
    (record,) = (run_dir / "completions/train").glob("*.completed.json")
    assert "torch" in json.loads(record.read_text())["result"]["versions"]
    log = (run_dir / "logs/train").glob("slurm-*.log")
    assert all(str(CHECKOUT) not in path.read_text() for path in log)
