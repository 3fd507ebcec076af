from pathlib import Path

import pytest

from tests.cluster import __main__ as program
from tests.cluster import lifecycle
from tests.cluster.errors import ClusterError, NotAClusterError


def down(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["cluster", "--folder", str(folder), "down"])
    assert program.main() == 0


def test_down_says_that_nothing_was_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        down(tmp_path / name, monkeypatch)
        assert capsys.readouterr().out == f"There was no cluster in {tmp_path / name}.\n"
    assert not (tmp_path / "empty").exists()


def test_down_says_what_it_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lifecycle, "bring_down", lambda _folder: True)  # a cluster needs root
    down(tmp_path, monkeypatch)
    assert capsys.readouterr().out == f"The cluster is down, and {tmp_path} is removed.\n"


def test_what_is_no_clusters_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotAClusterError, match="move it away"):
        lifecycle.bring_down(tmp_path)
    assert (tmp_path / "notes.txt").exists()


def test_what_a_test_run_killed_without_a_record_left_is_removed(tmp_path: Path) -> None:
    """Killed before the record was written, or while the folder was removed: nothing runs."""
    folder = tmp_path / "slurm-jobs-pytest-554"
    (folder / "home").mkdir(parents=True)
    (folder / "cluster.json.part").touch()
    lifecycle.clear_away(folder)
    assert not folder.exists()


def test_a_record_that_could_not_be_written_does_not_keep_the_folder(tmp_path: Path) -> None:
    """What went wrong is told by its own error then; the folder stands in nobody's way."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "cluster.json.part").touch()
    assert lifecycle.bring_down(folder) is False
    assert not folder.exists()


@pytest.mark.parametrize("record", ["", "[]", '{"folder": "/x", "of_another_version": 1}', "{}"])
def test_a_damaged_record_is_named_with_what_to_do(tmp_path: Path, record: str) -> None:
    (tmp_path / "cluster.json").write_text(record)
    with pytest.raises(ClusterError, match=r"cluster\.json cannot be read .* remove the folder"):
        lifecycle.bring_down(tmp_path)
    assert (tmp_path / "cluster.json").exists()


def test_the_record_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cluster.json", "log"):
        (tmp_path / name).touch()
    (tmp_path / "home").mkdir()

    def fail(path: Path) -> None:
        raise OSError(path)

    monkeypatch.setattr(lifecycle.shutil, "rmtree", fail)
    with pytest.raises(OSError, match="home"):
        lifecycle.remove(tmp_path)
    assert (tmp_path / "cluster.json").exists()
