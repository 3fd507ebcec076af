"""What becomes of what a stage's function raises."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.common.context import context_to_json
from slurm_jobs.common.files import read_json, write_json_atomic
from slurm_jobs.task import call
from slurm_jobs.task.rank import error_path
from tests.contexts import make_context


@pytest.fixture
def call_raising(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[BaseException], int]]:
    """Calls a stage whose function raises, without signal handlers in this process."""

    def called(error: BaseException) -> int:
        def function(_config: dict[str, Any], _context: object) -> None:
            raise error

        monkeypatch.setenv("SLURM_JOBS_ENTRY_POINT", "user:stage")
        monkeypatch.setattr(call, "install_stop_handler", lambda: None)
        monkeypatch.setattr(call, "find_function", lambda _run: function)
        path = tmp_path / "rank-00000.context.json"
        write_json_atomic(path, context_to_json(make_context("s", tmp_path)))
        return call.call_stage(path)

    umask = os.umask(0o077)
    yield called
    os.umask(umask)


class OutsideError(BaseException):
    """As torch's CheckpointException: no `Exception`."""


@pytest.mark.parametrize("error", [ValueError("no such row"), OutsideError("no such row")])
def test_whatever_ends_a_stage_is_recorded(
    tmp_path: Path, call_raising: Callable[[BaseException], int], error: BaseException
) -> None:
    assert call_raising(error) == 1
    recorded = read_json(error_path(tmp_path, 0))
    assert (recorded["type"], recorded["message"]) == (type(error).__name__, "no such row")
    assert recorded["retryable"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_that_was_asked_for_is_no_error_of_the_stage(
    tmp_path: Path, call_raising: Callable[[BaseException], int], error: BaseException
) -> None:
    with pytest.raises(type(error)):
        call_raising(error)
    assert not error_path(tmp_path, 0).exists()
