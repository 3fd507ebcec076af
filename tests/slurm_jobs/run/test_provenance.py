"""What a submit writes down about itself, with a real git in every state that it can be in."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.redact import NOT_SHOWN
from slurm_jobs.run import provenance
from slurm_jobs.run.git_facts import MAX_NAMES
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run_folder.paths import RunPaths


@pytest.fixture(autouse=True)
def _plain_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's settings but the repository's own."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A clean repository with one commit, a folder `specs` in it."""
    folder = tmp_path / "repo"
    (folder / "specs").mkdir(parents=True)
    (folder / "specs" / "spec.yaml").write_text("one\n")
    (folder / "moved.py").write_text("".join(f"line {i}\n" for i in range(20)))
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def record(
    folder: Path, tmp_path: Path, *, scheduler: str = "local", overrides: Sequence[str] = ()
) -> tuple[dict[str, Any], bytes]:
    """What is written about `folder`, and the diff."""
    paths = RunPaths(tmp_path / "run")
    record_provenance(paths, folder, 1, overrides, scheduler=scheduler, snapshot="f")
    diff = paths.uncommitted_diff(1)
    return json.loads(paths.provenance(1).read_text()), diff.read_bytes() if diff.exists() else b""


def test_a_clean_repository_is_its_commit_and_branch(repo: Path, tmp_path: Path) -> None:
    values, diff = record(repo / "specs", tmp_path)
    facts = values["git"]
    assert facts["commit"] == git(repo, "rev-parse", "HEAD")
    assert facts["branch"] == "main"
    assert facts["is_dirty"] is False
    assert (facts["changed"], facts["untracked"], facts["problems"], diff) == ([], [], [], b"")


def test_uncommitted_work_is_kept_as_a_diff_that_git_can_apply(repo: Path, tmp_path: Path) -> None:
    (repo / "specs" / "spec.yaml").write_text("two\n")
    (repo / "staged.bin").write_bytes(bytes(range(256)))
    git(repo, "add", "staged.bin")
    git(repo, "mv", "moved.py", "näme with space.py")
    (repo / "new").mkdir()
    (repo / "new" / "file").touch()
    (repo / "specs" / "loose.py").write_text("not in the diff")
    values, diff = record(repo / "specs", tmp_path)
    facts = values["git"]
    assert facts["is_dirty"] is True
    assert sorted(facts["changed"]) == ["näme with space.py", "specs/spec.yaml", "staged.bin"]
    assert facts["untracked"] == ["new/", "specs/loose.py"]
    assert (facts["diff_bytes"], facts["diff_is_cut"]) == (len(diff), False)
    assert b"not in the diff" not in diff

    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(repo), str(copy))
    (tmp_path / "diff").write_bytes(diff)
    git(copy, "apply", str(tmp_path / "diff"))
    assert (copy / "specs" / "spec.yaml").read_text() == "two\n"
    assert (copy / "staged.bin").read_bytes() == bytes(range(256))
    assert (copy / "näme with space.py").exists()


def test_a_detached_head_has_no_branch_and_a_new_repository_no_commit(
    repo: Path, tmp_path: Path
) -> None:
    git(repo, "checkout", "--quiet", "--detach")
    facts = record(repo, tmp_path)[0]["git"]
    assert (facts["branch"], facts["is_dirty"]) == (None, False)
    assert facts["commit"]

    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    facts = record(empty, tmp_path)[0]["git"]
    assert (facts["commit"], facts["branch"], facts["problems"]) == (None, "main", [])


def test_urls_of_remotes_are_written_without_user_and_password(repo: Path, tmp_path: Path) -> None:
    git(repo, "remote", "add", "origin", "https://ada:s3cr3t@host.example/r.git")
    git(repo, "remote", "add", "other", "git@host.example:r.git")
    facts = record(repo, tmp_path)[0]["git"]
    assert facts["remotes"] == {
        "origin": "https://host.example/r.git",
        "other": "git@host.example:r.git",
    }


def problem_of(folder: Path, tmp_path: Path) -> str:
    facts = record(folder, tmp_path)[0]["git"]
    assert (facts["commit"], facts["is_dirty"]) == (None, None)
    (problem,) = facts["problems"]
    return str(problem)


def test_a_folder_outside_any_repository_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    assert "not a git repository" in problem_of(folder, tmp_path)


def test_a_folder_that_is_gone_at_a_resume_is_reported(tmp_path: Path) -> None:
    assert "No such file or directory" in problem_of(tmp_path / "moved away", tmp_path)


def test_a_bare_repository_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    git(folder, "init", "--quiet", "--bare")
    assert "must be run in a work tree" in problem_of(folder, tmp_path)


@pytest.mark.parametrize("name", ["HEAD", "index"])
def test_a_broken_repository_is_reported(repo: Path, tmp_path: Path, name: str) -> None:
    (repo / ".git" / name).write_text("garbage")
    assert problem_of(repo, tmp_path).startswith("git: ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_repository_of_another_owner_is_reported(repo: Path, tmp_path: Path) -> None:
    os.chown(repo, 12345, 12345)
    os.chown(repo / ".git", 12345, 12345)
    assert "dubious ownership" in problem_of(repo, tmp_path)


def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A git that does what `script` says; only a fake one hangs on demand."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_a_missing_git_is_reported(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert problem_of(repo, tmp_path) == "git: No such file or directory"


def test_a_git_that_hangs_is_given_up(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_git(tmp_path, monkeypatch, "sleep 1000")
    monkeypatch.setattr(provenance, "ASK_LIMIT_S", 0.5)
    assert problem_of(repo, tmp_path) == "git: no answer in 0.5 s"


def test_a_huge_diff_is_cut_and_reported(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "MAX_ANSWER_BYTES", 3000)
    (repo / "specs" / "spec.yaml").write_text("long\n" * 2000)
    values, diff = record(repo, tmp_path)
    assert values["git"]["diff_is_cut"] is True
    assert values["git"]["is_dirty"] is True
    assert len(diff) == values["git"]["diff_bytes"] == 3000


def test_the_first_of_many_untracked_files_are_named_and_all_are_counted(
    repo: Path, tmp_path: Path
) -> None:
    for number in range(MAX_NAMES + 3):
        (repo / f"loose-{number}").touch()
    facts = record(repo, tmp_path)[0]["git"]
    assert facts["num_untracked"] == MAX_NAMES + 3
    assert len(facts["untracked"]) == MAX_NAMES


def test_variables_that_name_another_repository_do_not_mislead(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    (repo / "specs" / "spec.yaml").write_text("two\n")
    values, diff = record(repo, tmp_path)
    assert values["git"]["problems"] == []
    assert b"+two" in diff


def test_the_index_is_not_touched(repo: Path, tmp_path: Path) -> None:
    os.utime(repo / "specs" / "spec.yaml", (0, 0))  # git status would refresh the index
    before = (repo / ".git" / "index").read_bytes()
    assert record(repo, tmp_path)[0]["git"]["is_dirty"] is False
    assert (repo / ".git" / "index").read_bytes() == before


def test_command_line_host_and_packages_are_written_without_secrets(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "stages.a.environment.HF_TOKEN=hf_abc def"
    monkeypatch.setattr(sys, "argv", ["slurm-jobs", "submit", "s.yaml", "--set", secret])
    values, _ = record(repo, tmp_path, overrides=(secret, "limit=3"))
    hidden = f"stages.a.environment.HF_TOKEN={NOT_SHOWN}"
    assert values["command"] == ["slurm-jobs", "submit", "s.yaml", "--set", hidden]
    assert values["overrides"] == [hidden, "limit=3"]
    assert values["working_dir"] == str(Path.cwd())
    assert values["host"]["name"] == os.uname().nodename
    assert values["python"]["packages"]["pydantic"]
    assert values["slurm"] is None


def test_a_working_folder_that_was_removed_is_no_error(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert record(repo, tmp_path)[0]["working_dir"] is None


def test_a_working_folder_whose_name_is_no_utf8_is_written_down(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert record(repo, tmp_path)[0]["working_dir"] == str(folder)


def test_slurms_version_is_asked_of_slurm_alone(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    (folder / "sbatch").write_text("#!/bin/sh\nexit 3\n")
    (folder / "sbatch").chmod(0o700)
    values, _ = record(repo, tmp_path, scheduler="slurm")
    assert values["slurm"] == {"version": "", "problem": "sbatch: exit code 3"}
    (folder / "sbatch").write_text('#!/bin/sh\n[ "$*" = --version ] && echo slurm 23.11.4\n')
    values, _ = record(repo, tmp_path, scheduler="slurm")
    assert values["slurm"] == {"version": "slurm 23.11.4", "problem": ""}
