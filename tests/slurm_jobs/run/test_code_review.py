"""Which of the files that an attempt used have changed, and which work differs in code only."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.run.code_review import changed_files
from slurm_jobs.run.code_tree import CodeTree
from tests.slurm_jobs.run.reviewed_code import USED, tree


def changed(folder: Path, used: frozenset[str] | None, **changes: str | None) -> tuple[str, ...]:
    then, now = tree(folder / "then"), tree(folder / "now", **changes)
    return changed_files(used, then, now, then.differing(now))


def test_a_module_that_was_not_used_does_not_count(tmp_path: Path) -> None:
    assert changed(tmp_path, USED, odd_py="x = 1\n") == ()


def test_a_used_module_counts_when_it_changes_or_goes(tmp_path: Path) -> None:
    assert changed(tmp_path, USED, helper_py=None, work_py="") == ("helper.py", "work.py")


def test_a_file_that_is_not_python_counts_for_every_function(tmp_path: Path) -> None:
    assert changed(tmp_path, USED, prompt_txt="Tell.") == ("prompt.txt",)


def test_without_a_record_every_change_counts(tmp_path: Path) -> None:
    assert changed(tmp_path, None, odd_py="x = 1\n") == ("odd.py",)


def test_a_new_module_counts_if_a_used_one_imports_that_name(tmp_path: Path) -> None:
    used = frozenset({"work.py"})
    (tmp_path / "then").mkdir()
    (tmp_path / "then" / "work.py").write_text("import helper\n")
    then = CodeTree({"work.py": tmp_path / "then" / "work.py"})
    now = tree(tmp_path / "now", prompt_txt=None)
    assert changed_files(used, then, now, then.differing(now)) == ("helper.py",)


def test_a_new_package_takes_the_place_of_the_functions_module(tmp_path: Path) -> None:
    then, now = tree(tmp_path / "then"), tree(tmp_path / "now")
    (tmp_path / "now" / "work").mkdir()
    (tmp_path / "now" / "work" / "__init__.py").touch()
    files = {**now.files, "work/__init__.py": tmp_path / "now" / "work" / "__init__.py"}
    now = CodeTree(files)
    changed = changed_files(USED, then, now, then.differing(now), entry="work")
    assert changed == ("work/__init__.py",)
