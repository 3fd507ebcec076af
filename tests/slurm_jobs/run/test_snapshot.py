import dataclasses
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import slurm_jobs
from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.run.code_files import public_files
from slurm_jobs.run.snapshot import (
    refuse_uncopyable,
    renew_ours,
    take_snapshot,
    tree_fingerprint,
    user_sources,
)
from tests.slurm_jobs.run.closed import close
from tests.slurm_jobs.run.from_archive import run_in


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder: a module, a package with a tool in it, and a folder that is no package."""
    folder = tmp_path / "project"
    (folder / "package" / "deep").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "deep" / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "package" / "deep" / "tool.sh").chmod(0o755)
    (folder / "module.py").write_text("A = 1\n")
    (folder / "plain").mkdir()
    (folder / "plain" / "words.txt").write_text("words")
    return folder


def names_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("runs", "code", "expected"),
    [
        (["module:f"], [], ["module.py"]),
        (["package.deep.thing:f", "package:g"], [], ["package"]),
        (["plain:f"], [], []),  # no `__init__.py`: it is the stage's Python that has it
        (["torch:f", "nosuch.thing:f"], [], []),
        (["module:f"], ["plain", "module.py"], ["module.py", "plain"]),
    ],
)
def test_the_code_of_the_user_is_next_to_the_spec_or_listed_in_it(
    project: Path, runs: list[str], code: list[str], expected: list[str]
) -> None:
    found = user_sources(runs, [str(project / name) for name in code], project)
    assert found == [project / name for name in expected]


def test_what_a_module_imports_from_the_folder_of_the_spec_is_copied(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import json, numpy, helper\n\ndef run(config, context): ...")
    (tmp_path / "helper.py").write_text("def load():\n    from tables.codes import CODES\n")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/__init__.py").write_text("import work")
    (tmp_path / "tables/codes.py").write_text("from . import more\nimport deep")
    for name in ("deep.py", "json.py", "unrelated.py"):
        (tmp_path / name).write_text("(")
    sources = user_sources(["work:run"], [], tmp_path)
    assert [path.name for path in sources] == ["deep.py", "helper.py", "tables", "work.py"]


def test_a_snapshot_holds_our_packages_the_users_code_and_a_start_script(
    project: Path, tmp_path: Path
) -> None:
    sources = [project / "module.py", project / "package", project / "plain"]
    (project / "package" / "__pycache__").mkdir()
    (project / "package" / "__pycache__" / "x.pyc").write_bytes(b"x")
    made = take_snapshot(tmp_path / "code", sources)
    assert names_of(made.folder / "user") == {
        "module.py",
        "package/__init__.py",
        "package/deep/tool.sh",
        "plain/words.txt",
    }
    with zipfile.ZipFile(made.folder / "lib.zip") as library:
        assert {"slurm_jobs/worker/call.py", "pipeline/train/trainer.py"} <= {*library.namelist()}
        assert library.testzip() is None
    assert made.start_script.is_file()
    assert [path.name for path in (tmp_path / "code").iterdir()] == [made.folder.name]


def test_the_start_script_runs_the_snapshot_and_not_the_checkout(tmp_path: Path) -> None:
    made = take_snapshot(tmp_path / "code", [])
    with zipfile.ZipFile(made.folder / "lib.zip", "w") as library:
        library.writestr("slurm_jobs/__init__.py", "")
        probe = "def main(arguments):\n    print(__file__, *arguments)\n"
        library.writestr("slurm_jobs/worker/__init__.py", probe)
    command = [sys.executable, made.start_script, "task", "x"]
    assert subprocess.check_output(command, text=True, cwd="/").split() == [
        str(made.folder / "lib.zip" / "slurm_jobs" / "worker" / "__init__.py"),
        "task",
        "x",
    ]


def test_a_job_reads_the_templates_of_its_snapshot(tmp_path: Path) -> None:
    library = take_snapshot(tmp_path / "code", []).folder / "lib.zip"
    code = "from slurm_jobs.report.page.page_file import _read; print(_read('page.html'))"
    template = Path(slurm_jobs.__file__).parents[1] / "templates" / "report" / "page.html"
    assert run_in(library, code) == template.read_text().strip()


def test_a_snapshot_is_for_its_owner_alone(project: Path, tmp_path: Path) -> None:
    for path in project.rglob("*"):
        path.chmod(0o777)
    made = take_snapshot(tmp_path / "code", [project / "package", project / "module.py"])
    assert stat.S_IMODE((tmp_path / "code").stat().st_mode) == 0o700
    assert [p for p in made.folder.rglob("*") if p.stat().st_mode & 0o077] == []
    assert stat.S_IMODE((made.folder / "user" / "module.py").stat().st_mode) == 0o700


def test_executable_files_stay_so_and_no_others_become_so(project: Path, tmp_path: Path) -> None:
    user = take_snapshot(tmp_path / "code", [project / "package"]).folder / "user" / "package"
    assert os.access(user / "deep" / "tool.sh", os.X_OK)
    assert stat.S_IMODE((user / "__init__.py").stat().st_mode) == 0o600


def test_equal_code_gives_the_same_snapshot_and_changed_code_another(
    project: Path, tmp_path: Path
) -> None:
    sources = [project / "module.py", project / "package"]
    one = take_snapshot(tmp_path / "code", sources)
    kept = (one.folder / "start.py").stat().st_ino
    os.utime(project / "module.py", (1, 1))  # contents count, times do not
    assert take_snapshot(tmp_path / "code", sources) == one
    assert (one.folder / "start.py").stat().st_ino == kept
    (project / "module.py").write_text("A = 2\n")
    two = take_snapshot(tmp_path / "code", sources)
    assert two.folder != one.folder
    assert two.user_fingerprint != one.user_fingerprint
    assert (one.folder / "user" / "module.py").read_text() == "A = 1\n"


@pytest.mark.parametrize("change", ["content", "name", "folder", "new file", "fewer files"])
def test_the_fingerprint_changes_with_names_and_contents(project: Path, change: str) -> None:
    package = project / "package"
    before = tree_fingerprint([package])
    tool = package / "deep" / "tool.sh"
    if change == "content":
        tool.write_text("#!/bin/bash\n")
    elif change == "name":
        tool.rename(package / "deep" / "other.sh")
    elif change == "folder":
        tool.rename(package / "tool.sh")
    elif change == "new file":
        (package / "new.py").touch()
    else:
        tool.unlink()
    assert tree_fingerprint([package]) != before


def test_the_fingerprint_ignores_compiled_files_and_the_folder_of_the_code(
    project: Path, tmp_path: Path
) -> None:
    before = tree_fingerprint([project / "package"])
    (project / "package" / "__pycache__").mkdir()
    (project / "package" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    moved = project.rename(tmp_path / "moved")
    assert tree_fingerprint([moved / "package"]) == before


def test_a_link_to_a_file_is_copied_as_that_file(project: Path, tmp_path: Path) -> None:
    shared = project / "shared.py"
    shared.write_text("B = 1\n")
    (project / "package" / "linked.py").symlink_to(shared)
    sources = [project / "package", shared]
    one = take_snapshot(tmp_path / "code", sources)
    copied = one.folder / "user" / "package" / "linked.py"
    assert not copied.is_symlink()
    assert copied.read_text() == "B = 1\n"
    shared.write_text("B = 2\n")
    assert take_snapshot(tmp_path / "code", sources).folder != one.folder


def test_a_linked_folder_counts_and_a_dead_link_does_not(project: Path, tmp_path: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "m.py").write_text("A = 1\n")
    (project / "package" / "linked").symlink_to(project / "other")
    (project / "package" / "back").symlink_to(project / "package")
    (project / "package" / ".#lock.py").symlink_to("user@host.123")
    sources = [project / "package", project / "other"]
    before = tree_fingerprint(sources)
    made = take_snapshot(tmp_path / "code", sources)
    assert (made.folder / "user" / "package" / "linked" / "m.py").read_text() == "A = 1\n"
    (project / "other" / "m.py").write_text("A = 2\n")
    assert tree_fingerprint(sources) != before


def test_a_file_whose_name_is_not_utf8_is_copied_as_code(project: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (project / "package" / name).write_text("x")
    made = take_snapshot(tmp_path / "code", [project / "package"])
    assert (made.folder / "user" / "package" / name).read_text() == "x"


def test_a_folder_of_the_user_named_runs_is_copied_as_code(project: Path) -> None:
    (project / "package" / "runs").mkdir()
    (project / "package" / "runs" / "x.py").write_text("")
    assert "package/runs/x.py" in public_files([project / "package"])


def test_what_is_not_copied_does_not_count(project: Path) -> None:
    before = tree_fingerprint([project / "package"])
    run = project / "package" / "runs" / "a-20261121"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    assert tree_fingerprint([project / "package"]) == before


def test_two_sources_of_the_same_name_are_refused(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "module.py"
    other.parent.mkdir()
    other.write_text("B = 1\n")
    with pytest.raises(InputError, match="the same name"):
        take_snapshot(tmp_path / "code", [project / "module.py", other])
    assert not (tmp_path / "code").exists()


def test_a_snapshot_reads_the_orders_of_the_version_it_was_taken_of(tmp_path: Path) -> None:
    made = take_snapshot(tmp_path / "code", [])
    assert made.reads_our_orders
    note = made.folder / "made_by.json"
    write_json_atomic(note, {**read_json(note), "order_format": 0})
    assert not made.reads_our_orders
    note.unlink()  # as the first snapshots are
    assert not made.reads_our_orders


def test_our_code_can_be_renewed_under_the_users_old_code(project: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    shared = (project / "package").rename(tmp_path / "a" / "package")  # sorts before the module
    used = take_snapshot(tmp_path / "code", [shared, project / "module.py"])
    old = used.folder.rename(tmp_path / "code" / "old")
    used = dataclasses.replace(used, folder=old)
    (old / "made_by.json").unlink()
    (old / "lib.zip").write_bytes(b"of an earlier version")
    (project / "module.py").write_text("A = 2\n")
    renewed = renew_ours(tmp_path / "code", used)
    assert renewed.reads_our_orders
    assert renewed.folder != old
    assert names_of(renewed.folder / "user") == names_of(old / "user")
    assert (renewed.folder / "user" / "module.py").read_text() == "A = 1\n"
    assert os.access(renewed.folder / "user" / "package" / "deep" / "tool.sh", os.X_OK)
    assert run_in(renewed.folder / "lib.zip", "import slurm_jobs as s; print(s.__version__)")
    assert renewed.user_fingerprint == used.user_fingerprint  # nothing of theirs runs again


@pytest.mark.parametrize("parent", [".", "deep"])
def test_caches_that_root_has_left_closed_are_not_looked_into(
    project: Path, monkeypatch: pytest.MonkeyPatch, parent: str
) -> None:
    package = project / "package"
    expected = public_files([package])
    (package / parent / "__pycache__").mkdir()
    close(package / parent / "__pycache__", monkeypatch)
    assert public_files([package]) == expected


@pytest.mark.parametrize("closed", [".", "deep", "deep/deeper"])
def test_code_with_a_closed_folder_is_refused_and_the_folder_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    package = project / "package"
    (package / "deep" / "deeper").mkdir()
    close(package / closed, monkeypatch)
    with pytest.raises(InputError, match="Permission denied; a run copies the code") as refused:
        refuse_uncopyable([package])
    assert str(refused.value).startswith(str(package / closed))


def test_code_with_a_closed_file_is_refused_and_the_file_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = project / "package" / "deep" / "tool.sh"
    real = os.access
    monkeypatch.setattr("os.access", lambda path, mode: path != tool and real(path, mode))
    with pytest.raises(InputError, match=f"^{tool}: Permission denied"):
        refuse_uncopyable([project / "package"])


def test_a_closed_run_does_not_hide_that_its_folder_holds_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = project / "package" / "runs"
    for name in ("a", "b", "c"):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text("{}")
    close(runs / "a", monkeypatch)
    close(runs / "c", monkeypatch)
    assert not any("runs" in name for name in public_files([project / "package"]))
