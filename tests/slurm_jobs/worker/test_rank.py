"""The node's own folder lies where anybody may write: what others put there is not trusted."""

import dataclasses
import os
import re
import stat
from pathlib import Path

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.worker.rank import _node_local_dir
from tests.contexts import make_context

OWN = f"slurm-jobs-{os.getuid()}"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Fast storage of a node, open to everybody as /tmp is."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def context(tmp_path: Path, node_local_dir: Path | str, node_name: str = "n1") -> TaskContext:
    made = make_context("s", tmp_path / "run", node_name=node_name)
    return dataclasses.replace(made, node_local_dir=Path(node_local_dir))


def require_refused(tmp_path: Path, base: Path) -> None:
    with pytest.raises(StageConfigError, match="not a private folder") as caught:
        _node_local_dir(context(tmp_path, base))
    assert str(base / OWN) in str(caught.value)
    assert "n1" in str(caught.value)


def test_each_node_has_its_own_private_folder(tmp_path: Path, base: Path) -> None:
    found = [_node_local_dir(context(tmp_path, base, name)) for name in ("n1", "n2", "n1")]
    assert found == [base / OWN / name for name in ("n1", "n2", "n1")]
    for folder in (base / OWN, *found):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(base.stat().st_mode) == 0o1777  # what was there stays as it was


def test_the_folder_may_be_used_again_with_what_is_in_it(tmp_path: Path, base: Path) -> None:
    (_node_local_dir(context(tmp_path, base)) / "shard").touch()
    assert (_node_local_dir(context(tmp_path, base)) / "shard").exists()


@pytest.mark.parametrize("text", ["$FAST/x", "${FAST}/x", "~/x"])
def test_variables_of_the_node_are_expanded(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("FAST", str(base))
    monkeypatch.setenv("HOME", str(base))
    assert _node_local_dir(context(tmp_path, text)) == base / "x" / OWN / "n1"


@pytest.mark.parametrize("text", ["$NO_SUCH_VARIABLE/x", "/scratch/${NO_SUCH_VARIABLE}"])
def test_a_variable_that_the_node_does_not_set_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StageConfigError, match=re.escape(text)) as caught:
        _node_local_dir(context(tmp_path, text))
    assert "n1" in str(caught.value)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path, base: Path) -> None:
    (base / OWN).mkdir(mode=0o700)
    os.chown(base / OWN, 12345, 12345)
    require_refused(tmp_path, base)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o777])
def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path, base: Path, mode: int) -> None:
    (base / OWN).mkdir()
    (base / OWN).chmod(mode)
    require_refused(tmp_path, base)


def test_a_link_is_refused_even_to_a_private_folder(tmp_path: Path, base: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (base / OWN).symlink_to(private)
    require_refused(tmp_path, base)
    assert list(private.iterdir()) == []


@pytest.mark.parametrize("what", ["file", "broken link"])
def test_what_is_no_folder_is_an_error(tmp_path: Path, base: Path, what: str) -> None:
    if what == "file":
        (base / OWN).touch(mode=0o600)
    else:
        (base / OWN).symlink_to(tmp_path / "nowhere")
    with pytest.raises((OSError, StageConfigError), match=OWN):  # the keeper records either
        _node_local_dir(context(tmp_path, base))
    assert not (tmp_path / "nowhere").exists()
