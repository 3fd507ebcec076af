"""A uid that has no entry in passwd and no HOME, as many containers give one."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.driver import processes_naming, wait_for
from tests.end_to_end.other_user import run_python

UID = 65_533
SPEC = """
name: a
runs_dir: runs
cluster: local
stages:
  hello: {shell: "id -u", resources: {timeout_min: 5}}
"""
CODE = """
import sys
from slurm_jobs.cli.main import main
sys.argv[0] = "slurm-jobs"
main({words!r})
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may start a command as another user")
    with pytest.raises(KeyError):
        pwd.getpwuid(UID)
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-pytest-", dir="/var/tmp") as name:
        (Path(name) / "spec.yaml").write_text(SPEC)
        for path in (Path(name), Path(name, "spec.yaml")):
            shutil.chown(path, UID, UID)
        yield Path(name)
        wait_for(lambda: not processes_naming(name), "the end of the runner")


def test_a_uid_without_an_account_submits_and_is_shown_by_its_number(folder: Path) -> None:
    def command(*words: str) -> str:
        done = run_python(folder, CODE.format(words=[*words]), uid=UID, gid=UID)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command("run", "spec.yaml")
    (run_dir,) = (folder / "runs").iterdir()
    facts = json.loads((run_dir / "run.json").read_text())
    assert (facts["submitted_by"], facts["uid"]) == (str(UID), UID)
    assert command("logs").strip() == str(UID)
    assert "completed" in command("status")
    assert "completed" in command("report").lower()


@pytest.mark.parametrize(
    "words", [("doctor", "--no-nodes"), ("init", "--local", "--recipe", "demo")]
)
def test_other_commands_of_such_a_uid_end_without_a_traceback(
    folder: Path, words: tuple[str, ...]
) -> None:
    done = run_python(folder, CODE.format(words=[*words]), uid=UID, gid=UID)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 1, 3}
