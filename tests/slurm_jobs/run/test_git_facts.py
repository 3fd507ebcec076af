"""Repositories that name programs or foreign files: a submit starts and keeps none of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run_folder.paths import RunPaths


@pytest.fixture(autouse=True)
def _plain_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "user.gitconfig").write_text("[user]\n name = a\n email = a@b\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "user.gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


def git(folder: Path, *words: str | bytes) -> bytes:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *words],
        check=True,
        capture_output=True,
    )
    return done.stdout


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "spec.yaml").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a mark wherever it is started."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\ncat 2>/dev/null\n")
    path.chmod(0o700)
    return path


def attribute(repo: Path, text: str) -> None:
    (repo / ".gitattributes").write_text(f"spec.yaml {text}\n")


def clean_filter(repo: Path, program: Path) -> None:
    attribute(repo, "filter=evil")
    git(repo, "config", "filter.evil.clean", str(program))


def process_filter(repo: Path, program: Path) -> None:
    attribute(repo, "filter=evil")
    git(repo, "config", "filter.evil.process", str(program))
    git(repo, "config", "filter.evil.required", "true")


def filter_with_an_odd_name(repo: Path, program: Path) -> None:
    attribute(repo, "filter=a=b.c")
    git(repo, "config", "filter.a=b.c.clean", str(program))


def filter_whose_name_is_no_utf8(repo: Path, program: Path) -> None:
    (repo / ".gitattributes").write_bytes(b"spec.yaml filter=\xe9\n")
    git(repo, "config", b"filter.\xe9.clean", str(program))


def filter_of_an_included_file(repo: Path, program: Path) -> None:
    attribute(repo, "filter=evil")
    (repo / "more").write_text(f'[filter "evil"]\n clean = {program}\n')
    git(repo, "config", "include.path", "../more")


def filter_of_a_conditional_include(repo: Path, program: Path) -> None:
    filter_of_an_included_file(repo, program)
    git(repo, "config", "--unset", "include.path")
    git(repo, "config", "includeIf.onbranch:main.path", "../more")


def filter_of_one_work_tree(repo: Path, program: Path) -> None:
    attribute(repo, "filter=evil")
    git(repo, "config", "extensions.worktreeConfig", "true")
    git(repo, "config", "--worktree", "filter.evil.clean", str(program))


def filter_of_a_repository_elsewhere(repo: Path, program: Path) -> None:
    clean_filter(repo, program)
    (repo / ".git").rename(repo / "elsewhere")
    (repo / ".git").write_text("gitdir: elsewhere\n")


def attributes_elsewhere(repo: Path, program: Path) -> None:
    (repo / "attributes").write_text("* filter=evil\n")
    git(repo, "config", "core.attributesFile", str(repo / "attributes"))
    git(repo, "config", "filter.evil.clean", str(program))


def filter_of_the_users_own_settings(repo: Path, program: Path) -> None:
    attribute(repo, "filter=lfs")
    subprocess.run(["git", "config", "--global", "filter.lfs.clean", str(program)], check=True)


def file_monitor(repo: Path, program: Path) -> None:
    git(repo, "config", "core.fsmonitor", str(program))


def hook(repo: Path, program: Path) -> None:
    for name in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (repo / ".git" / "hooks" / name).write_bytes(program.read_bytes())
        (repo / ".git" / "hooks" / name).chmod(0o700)


def hooks_elsewhere(repo: Path, program: Path) -> None:
    (repo / "hooks").mkdir()
    (repo / "hooks" / "post-index-change").write_bytes(program.read_bytes())
    (repo / "hooks" / "post-index-change").chmod(0o700)
    git(repo, "config", "core.hooksPath", "hooks")


def external_diff(repo: Path, program: Path) -> None:
    git(repo, "config", "diff.external", str(program))


def driver_of_diff(repo: Path, program: Path) -> None:
    attribute(repo, "diff=evil")
    git(repo, "config", "diff.evil.command", str(program))
    git(repo, "config", "diff.evil.textconv", str(program))


def pager_and_alias(repo: Path, program: Path) -> None:
    for key in ("core.pager", "pager.status", "pager.diff", "core.editor", "gpg.program"):
        git(repo, "config", key, str(program))
    git(repo, "config", "alias.status", f"!{program}")
    git(repo, "config", "alias.diff", f"!{program}")


def transport_of_a_partial_clone(repo: Path, program: Path) -> None:
    """What HEAD has is missing, and the remote that is said to have it is a command."""
    blob = git(repo, "rev-parse", "HEAD:spec.yaml").decode().strip()
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    git(repo, "config", "core.repositoryformatversion", "1")
    git(repo, "config", "extensions.partialClone", "origin")
    git(repo, "config", "remote.origin.url", f"ext::{program}")
    git(repo, "config", "remote.origin.promisor", "true")
    git(repo, "config", "protocol.ext.allow", "always")


def ssh_of_a_partial_clone(repo: Path, program: Path) -> None:
    transport_of_a_partial_clone(repo, program)
    git(repo, "config", "remote.origin.url", "git@nowhere.example:a")
    git(repo, "config", "core.sshCommand", str(program))


def submodule_with_settings(repo: Path, program: Path) -> None:
    inner = repository(repo.parent / "inner")
    git(repo, "submodule", "--quiet", "add", str(inner), "module")
    git(repo, "commit", "--quiet", "--message=module")
    (repo / "module" / "spec.yaml").write_text("two\n")
    for key in ("core.fsmonitor", "filter.evil.clean", "diff.external"):
        git(repo / "module", "config", key, str(program))
    (repo / "module" / ".gitattributes").write_text("* filter=evil\n")
    git(repo, "config", "diff.submodule", "diff")
    git(repo, "config", "status.submoduleSummary", "true")
    git(repo, "config", "diff.ignoreSubmodules", "none")


MECHANISMS = (
    *(clean_filter, process_filter, filter_with_an_odd_name, filter_whose_name_is_no_utf8),
    *(filter_of_an_included_file, filter_of_a_conditional_include, filter_of_one_work_tree),
    *(filter_of_a_repository_elsewhere, attributes_elsewhere),
    *(filter_of_the_users_own_settings, file_monitor, hook),
    *(hooks_elsewhere, external_diff, driver_of_diff, pager_and_alias),
    *(transport_of_a_partial_clone, ssh_of_a_partial_clone, submodule_with_settings),
)


@pytest.mark.parametrize("plant", MECHANISMS, ids=lambda plant: plant.__name__)
def test_a_submit_starts_no_program_that_a_repository_names(
    repo: Path, program: Path, plant: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    plant(repo, program)
    (tmp_path / "started").unlink(missing_ok=True)  # planting may have started it
    (repo / "spec.yaml").write_text("two\n")
    paths = RunPaths(tmp_path / "run")
    record_provenance(paths, repo, 1, (), scheduler="local", snapshot="f")
    assert not (tmp_path / "started").exists()
    facts = json.loads(paths.provenance(1).read_text())["git"]
    assert facts["commit"]
    assert "spec.yaml" in facts["changed"]


def test_a_submodule_at_another_commit_is_a_change(repo: Path, tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner")
    git(repo, "submodule", "--quiet", "add", str(inner), "module")
    git(repo, "commit", "--quiet", "--message=module")
    (repo / "module" / "spec.yaml").write_text("two\n")
    git(repo / "module", "commit", "--quiet", "--all", "--message=second")
    paths = RunPaths(tmp_path / "run")
    record_provenance(paths, repo, 1, (), scheduler="local", snapshot="f")
    assert json.loads(paths.provenance(1).read_text())["git"]["changed"] == ["module"]
    assert b"+Subproject commit" in paths.uncommitted_diff(1).read_bytes()


def test_settings_that_cannot_be_read_leave_the_files_alone(repo: Path, tmp_path: Path) -> None:
    (repo / ".git" / "config").write_text("[broken\n")
    paths = RunPaths(tmp_path / "run")
    record_provenance(paths, repo, 1, (), scheduler="local", snapshot="f")
    facts = json.loads(paths.provenance(1).read_text())["git"]
    assert facts["is_dirty"] is None
    assert len(facts["problems"]) == 1


def facts_of(folder: Path, tmp_path: Path) -> tuple[dict[str, Any], bytes]:
    paths = RunPaths(tmp_path / "run")
    record_provenance(paths, folder, 1, (), scheduler="local", snapshot="f")
    diff = paths.uncommitted_diff(1)
    facts = json.loads(paths.provenance(1).read_text())["git"]
    return facts, diff.read_bytes() if diff.exists() else b""


def tracked_key(repo: Path) -> None:
    (repo / ".ssh").mkdir()
    (repo / ".ssh" / "id_rsa").write_text("theirs\n")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "--message=key")


def work_tree_elsewhere(repo: Path, victim: Path) -> None:
    tracked_key(repo)
    git(repo, "config", "core.worktree", f"../../{victim.name}")


def work_tree_of_a_file_that_leads_on(repo: Path, victim: Path) -> None:
    work_tree_elsewhere(repo, victim)
    (repo / ".git").rename(repo / "elsewhere")
    (repo / ".git").write_text("gitdir: elsewhere\n")


def repository_without_dot_git(repo: Path, victim: Path) -> None:
    """The victim's own repository holds a folder that is one itself, with its parent compared."""
    tracked_key(repo)
    git(repo, "config", "core.worktree", "..")
    (repo / ".git").rename(victim / "repo")
    shutil.rmtree(repo)
    repo.symlink_to(victim / "repo")


def file_that_leads_to_another_repository(repo: Path, victim: Path) -> None:
    shutil.rmtree(repo / ".git")
    (repo / ".git").write_text(f"gitdir: {victim}/.git\n")


def file_that_leads_to_another_work_tree(repo: Path, victim: Path) -> None:
    git(victim, "worktree", "add", "--quiet", str(victim.parent / "second"))
    shutil.rmtree(repo / ".git")
    (repo / ".git").write_bytes((victim.parent / "second" / ".git").read_bytes())


def link_to_another_repository(repo: Path, victim: Path) -> None:
    shutil.rmtree(repo / ".git")
    (repo / ".git").symlink_to(victim / ".git")


def shared_part_of_another_repository(repo: Path, victim: Path) -> None:
    (repo / ".git" / "commondir").write_text(f"{victim}/.git\n")
    (repo / ".git" / "gitdir").write_text(f"{repo}/.git\n")


def branches_of_another_repository(repo: Path, victim: Path) -> None:
    (repo / ".git" / "objects" / "info" / "alternates").write_text(f"{victim}/.git/objects\n")
    shutil.rmtree(repo / ".git" / "refs" / "heads")
    (repo / ".git" / "refs" / "heads").symlink_to(victim / ".git" / "refs" / "heads")


def index_with_names_outside(repo: Path, _victim: Path) -> None:
    name = "xx/victim/.ssh/id_rsa"
    (repo / name).parent.mkdir(parents=True)
    (repo / name).write_text("theirs\n")
    git(repo, "add", ".")
    index = repo / ".git" / "index"
    entries = index.read_bytes()[:-20].replace(name.encode(), name.replace("xx", "..").encode())
    index.write_bytes(entries + hashlib.sha1(entries, usedforsecurity=False).digest())


FOREIGN = (
    *(work_tree_elsewhere, work_tree_of_a_file_that_leads_on, repository_without_dot_git),
    *(file_that_leads_to_another_repository, file_that_leads_to_another_work_tree),
    *(link_to_another_repository, shared_part_of_another_repository),
    *(branches_of_another_repository, index_with_names_outside),
)


@pytest.mark.parametrize("plant", FOREIGN, ids=lambda plant: plant.__name__)
def test_a_submit_keeps_no_text_of_files_outside_the_repository(
    repo: Path, plant: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    victim = repository(tmp_path / "victim")
    tracked_key(victim)
    (victim / ".ssh" / "id_rsa").write_text("secret\n")
    git(victim, "commit", "--quiet", "--all", "--message=secret")
    plant(repo, victim)
    facts, diff = facts_of(repo, tmp_path)
    assert diff == b""
    assert facts["diff_bytes"] == 0
    assert len(facts["problems"]) == 1


def test_links_in_the_tracked_files_are_compared_as_links(repo: Path, tmp_path: Path) -> None:
    tracked_key(repo)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "id_rsa").write_text("secret\n")
    shutil.rmtree(repo / ".ssh")
    (repo / ".ssh").symlink_to(tmp_path / "victim")
    (repo / "spec.yaml").unlink()
    (repo / "spec.yaml").symlink_to(tmp_path / "victim" / "id_rsa")
    facts, diff = facts_of(repo, tmp_path)
    assert facts["is_dirty"] is True
    assert b"victim/id_rsa" in diff
    assert b"secret" not in diff


def second_work_tree(repo: Path) -> Path:
    git(repo, "worktree", "add", "--quiet", str(repo.parent / "second"))
    return repo.parent / "second"


def submodule(repo: Path) -> Path:
    inner = repository(repo.parent / "inner")
    git(repo, "submodule", "--quiet", "add", str(inner), "module")
    return repo / "module"


def work_tree_of_a_submodule(repo: Path) -> Path:
    return second_work_tree(submodule(repo))


def link_to_the_folder(repo: Path) -> Path:
    (repo.parent / "linked").symlink_to(repo)
    return repo.parent / "linked"


GENUINE = (second_work_tree, submodule, work_tree_of_a_submodule, link_to_the_folder)


@pytest.mark.parametrize("make", GENUINE, ids=lambda make: make.__name__)
def test_other_kinds_of_work_trees_keep_their_facts(
    repo: Path, make: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = make(repo)
    (folder / "spec.yaml").write_text("two\n")
    facts, diff = facts_of(folder, tmp_path)
    assert (facts["problems"], facts["changed"]) == ([], ["spec.yaml"])
    assert facts["commit"]
    assert b"+two" in diff
