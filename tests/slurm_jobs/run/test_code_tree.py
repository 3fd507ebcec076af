"""Files of two trees of code that differ."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.run.code_review import changed_files
from tests.slurm_jobs.run.reviewed_code import USED, tree


def test_a_file_that_became_executable_has_changed(tmp_path: Path) -> None:
    then, now = tree(tmp_path / "then"), tree(tmp_path / "now")
    (tmp_path / "now" / "helper.py").chmod(0o755)
    assert changed_files(USED, then, now, then.differing(now)) == ("helper.py",)
