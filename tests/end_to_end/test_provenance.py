"""Secrets from everywhere reach nothing that they should not; a run is its owner's alone."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import STAGES
from tests.end_to_end.driver import Driver, files_below, is_alive, processes_naming, wait_for
from tests.end_to_end.other_user import run_python

NOBODY = pwd.getpwnam("nobody")

ROOT = Path(__file__).resolve().parents[2]
PLANTED = {
    "process": "s3cr3t-of-the-process",
    "spec": "s3cr3t-of-the-spec",
    "stage": "s3cr3t-of-the-stage",
    "profile": "s3cr3t-of-the-profile",
    "override": "s3cr3t-of-an-override",
    "remote": "s3cr3t-of-the-remote",
    "diff": "s3cr3t-of-the-diff",
}
MAY_HOLD = {
    "spec": ("spec/", "jobs/"),
    "stage": ("spec/", "jobs/"),
    "profile": ("spec/", "jobs/"),
    "override": ("spec/", "jobs/"),
    "diff": ("provenance/0001.diff", "provenance/0002.diff"),
}
"""Where the spec's own values must stand for the jobs to get them, and what git had not committed;
the process's environment and the remote's password stand nowhere."""

SPEC = f"""
name: secrets
cluster: ours.yaml
environment: {{HF_TOKEN: {PLANTED["spec"]}}}
stages:
  a:
    shell: 'test "$HF_TOKEN $DB_PASSWORD $MY_API_KEY $PLANTED_TOKEN" = "$EXPECTED"'
    environment: {{DB_PASSWORD: {PLANTED["stage"]}}}
  b:
    run: user_stages:work
    resources: {{tasks_per_node: 2}}
  fails:
    shell: echo "$HF_TOKEN" >/dev/null; exit 3
  report: {{run: report, after: {{a: afterany, b: afterany, fails: afterany}}}}
"""


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


def test_planted_secrets_are_found_only_where_the_jobs_need_them(
    local: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.write(
        "ours.yaml", f"scheduler: local\nenvironment: {{MY_API_KEY: {PLANTED['profile']}}}\n"
    )
    local.write("spec.yaml", SPEC)
    _git(local.folder, "init", "--quiet")
    _git(local.folder, "remote", "add", "origin", f"https://ada:{PLANTED['remote']}@h.example/r")
    _git(local.folder, "add", ".")
    _git(local.folder, "commit", "--quiet", "--message=first")
    local.write(
        "user_stages.py", (local.folder / "user_stages.py").read_text() + f"# {PLANTED['diff']}"
    )
    monkeypatch.setenv("PLANTED_TOKEN", PLANTED["process"])
    values = (PLANTED[name] for name in ("spec", "override", "profile", "process"))
    monkeypatch.setenv("EXPECTED", " ".join(values))
    monkeypatch.setenv("SLURM_MY_PASSWORD", PLANTED["process"])

    setting = f"stages.a.environment.DB_PASSWORD={PLANTED['override']}"
    run_dir = local.submit("spec.yaml", "--set", setting)
    status = local.wait(run_dir)
    words = {stage["name"]: stage["status"] for stage in status["stages"]}
    assert words == {"a": "completed", "b": "completed", "fails": "failed", "report": "completed"}
    local.run("report", str(run_dir))
    local.run("resume", str(run_dir))
    local.wait(run_dir)

    files = files_below(run_dir)
    for name, secret in PLANTED.items():
        holders = [path for path, data in files.items() if secret.encode() in data]
        code = [path for path in holders if name == "diff" and path.startswith("code/")]
        wrong = [
            path
            for path in holders
            if path not in code and not path.startswith(MAY_HOLD.get(name, ("nowhere",)))
        ]
        assert wrong == [], f"the secret of the {name} stands in {wrong}"
    assert PLANTED["diff"].encode() in files["provenance/0001.diff"]
    assert PLANTED["override"].encode() in files["spec/resolved.json"]  # the search finds something
    assert b"(not shown)" in files["provenance/0001.json"]
    assert b"https://h.example/r" in files["report/report.html"]
    for path in ("report/report.html", "report/report.json"):
        assert b"(not shown)" in files[path]
        assert not [name for name, secret in PLANTED.items() if secret.encode() in files[path]]


def test_resume_notes_its_own_origin_and_every_attempt_its_nodes(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    run: user_stages:work
    array: {num_slices: 2}
    resources: {nodes: 2, tasks_per_node: 2}
    config: {fail: {"1": 1}}
""",
        "--limit",
        "7",
    )
    local.wait(run_dir)
    local.run("resume", str(run_dir), "--set", "stages.a.retries=1")
    assert local.wait(run_dir)["status"] == "completed"
    first, second = (
        json.loads((run_dir / f"provenance/000{number}.json").read_text()) for number in (1, 2)
    )
    assert first["command"][1:] == ["submit", "spec.yaml", "--limit", "7", "--json"]
    assert first["overrides"] == ["limit=7"]
    assert second["overrides"] == ["stages.a.retries=1"]
    assert second["command"][1] == "resume"
    assert "not a git repository" in first["git"]["problems"][0]
    # Of the attempt that fails, the ranks of one node may be ended before they run.
    least = {"s00000.a0001": 2, "s00001.a0001": 1, "s00001.a0002": 2}
    for attempt, num_nodes in least.items():
        noted = sorted((run_dir / "tasks/a" / attempt).glob("node-*.json"))
        assert len(noted) >= num_nodes
        for path in noted:
            facts = json.loads(path.read_text())
            assert facts["node_name"] == f"local{int(path.stem[-5:])}"
            python = json.loads((run_dir / f"pythons/{facts['python']}.json").read_text())
            assert Path(python["executable"]).samefile(sys.executable)
            assert "pytest" in python["packages"]
    assert len(list((run_dir / "pythons").iterdir())) == 1


def test_nvidia_smi_that_hangs_neither_fails_nor_outlives_an_attempt(
    local: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = local.folder / "begun"
    hanging = local.write("bin/nvidia-smi", f"#!/bin/sh\necho $$ >> {begun}\nexec sleep 98765\n")
    hanging.chmod(0o700)
    monkeypatch.setenv("PATH", str(hanging.parent), prepend=os.pathsep)
    wait = f"while [ ! -s {begun} ]; do sleep 0.01; done"
    stage = {"shell": wait, "resources": {"tasks_per_node": 2}}
    local.write(
        "spec.yaml", json.dumps({"name": "gpu", "cluster": "local", "stages": {"a": stage}})
    )
    run_dir = local.submit("spec.yaml")
    assert local.wait(run_dir)["status"] == "completed"
    facts = json.loads((run_dir / "tasks/a/s00000.a0001/node-00000.json").read_text())
    assert facts["gpu_problem"] == "nvidia-smi had not answered when the attempt ended"
    assert facts["memory_bytes"]
    for pid in begun.read_text().split():
        wait_for(lambda pid=pid: not is_alive(int(pid)), "the end of nvidia-smi")


API = """
import os, sys, time
os.umask(0o022)
from pathlib import Path
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.resume import resume
from slurm_jobs.commands.submit import submit
from slurm_jobs.report.stage import build_and_write
from slurm_jobs.run.observe import status_of

def wait(run_dir):
    while status_of(run_dir).status in {"running", "waiting"}:
        time.sleep(0.2)

run_dir = submit(load(Path("spec.yaml"))).paths.run_dir
wait(run_dir)
resume(run_dir)
wait(run_dir)
from slurm_jobs.run_folder.paths import RunPaths
build_and_write(RunPaths(run_dir))
assert os.umask(0) == 0o022
print(run_dir)
"""

OPEN_SPEC = """
name: private
cluster: local
stages:
  a:
    run: user_stages:work
    array: {num_slices: 2}
    resources: {nodes: 2}
    setup: ["umask 022", "echo set up"]
    config: {fail: {"1": 1}}
  b: {shell: 'mkdir "$SLURM_JOBS_OUTPUT_DIR/d" && date > "$SLURM_JOBS_OUTPUT_DIR/d/f"', after: a}
  report: {run: report, after: {b: afterany}}
"""


@pytest.fixture
def users_folder() -> Iterator[Path]:
    """A folder of an ordinary user's; pytest keeps its own to itself."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    user = NOBODY
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-pytest-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "user_stages.py").write_bytes(STAGES.read_bytes())
        (folder / "spec.yaml").write_text(OPEN_SPEC)
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user.pw_uid, user.pw_gid)
        yield folder
        wait_for(lambda: not processes_naming(name), "the end of the runner")


def test_every_file_of_a_run_is_private_in_spite_of_an_open_umask(
    users_folder: Path,
) -> None:
    done = run_python(users_folder, API, uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, home=users_folder)
    assert done.returncode == 0, done.stderr
    run_dir = Path(done.stdout.split()[-1])
    wait_for(lambda: not processes_naming(str(run_dir)), "the end of the runner")
    found = {path: path.lstat() for path in (run_dir.parent, run_dir, *run_dir.rglob("*"))}
    assert len(found) > 80
    assert {path.name for path in found} >= {"report.html", "runner.log", "f", "0002.json"}
    for path, stats in found.items():
        assert stats.st_uid == pwd.getpwnam("nobody").pw_uid, path
        mode = stat.S_IMODE(stats.st_mode)
        runs = path.is_file() and "code" in path.parts and mode == 0o700  # may be executed, too
        assert mode == (0o700 if path.is_dir() or runs else 0o600), path
