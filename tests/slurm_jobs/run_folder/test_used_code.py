"""Lists of used files: a damaged one stands for the whole code."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.used_code import read_used_files


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"files": 5}', '{"files": [5]}'])
def test_a_damaged_list_stands_for_the_whole_code(tmp_path: Path, text: str) -> None:
    paths = RunPaths(tmp_path)
    paths.used_code("a", "0" * 16).parent.mkdir(parents=True)
    paths.used_code("a", "0" * 16).write_text(text)
    assert read_used_files(paths, "a", "0" * 16) is None
