import os
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.spec_reading.read_spec import load

SPEC = "name: a\ncluster: local\nruns_dir: here/runs\nstages: {a: {shell: 'true'}}\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    return file


def test_a_runs_dir_below_a_file_is_a_problem_for_who_submits_alone(
    spec: Path, tmp_path: Path
) -> None:
    load(spec, to_submit=True)
    (tmp_path / "here").touch()
    load(spec)
    with pytest.raises(SpecError) as caught:
        load(spec, to_submit=True)
    assert str(caught.value) == (
        f"{spec}:3:11: runs_dir: no run can be made in {tmp_path}/here/runs: {tmp_path}/here is "
        "not a folder"
    )


def test_a_runs_dir_below_a_link_to_nowhere_is_a_problem(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("/scratch-away")
    message = f"{tmp_path}/here is a link to /scratch-away, which does not exist"
    with pytest.raises(SpecError, match=message):
        load(spec, to_submit=True)


def test_a_runs_dir_that_may_not_be_written_is_a_problem(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    asked = []

    def refuses(path: Path, mode: int) -> bool:  # root may write everywhere, so nobody is asked
        asked.append((path, mode))
        return False

    monkeypatch.setattr("os.access", refuses)
    with pytest.raises(SpecError, match=f"{tmp_path}/here is not writable"):
        load(spec, to_submit=True)
    assert asked == [(tmp_path / "here", os.W_OK | os.X_OK)]


def test_only_the_text_of_a_small_file_is_read(tmp_path: Path) -> None:
    small_text = disk_files().small_text
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\xff")
    assert small_text(str(tmp_path / "a")) == "a\ufffd"
    with (tmp_path / "b").open("wb") as stream:
        stream.truncate(1 << 40)
    os.mkfifo(tmp_path / "c")
    for name in "bcd":
        assert small_text(str(tmp_path / name)) is None
