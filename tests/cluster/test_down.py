from pathlib import Path

import pytest

from tests.cluster import __main__ as program
from tests.cluster import lifecycle


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
