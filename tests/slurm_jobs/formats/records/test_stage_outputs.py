"""Outputs that a stage lists and that are not there as regular files of that size."""

from pathlib import Path

from slurm_jobs.formats.records.stage_outputs import wrong_outputs


def test_outputs_that_no_regular_file_can_be_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "sub").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    num_bytes = (tmp_path / "sub").stat().st_size
    wrong = {"sub": num_bytes, "": num_bytes, "loop": 4, "x" * 256: 3, "a\0b": 3, "a.txt/b": 3}
    assert wrong_outputs(tmp_path, {"a.txt": 3, **wrong}) == list(wrong)
