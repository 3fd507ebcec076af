"""What becomes of what a stage's function raises, and of one that is not there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.worker import call
from slurm_jobs.worker.late_exit import returned_path
from slurm_jobs.worker.rank import error_path, result_path
from tests.contexts import make_context

ROOT = Path(__file__).resolve().parents[3]
NEEDS = "def run(config, context):\n    import no_such_module_here\n"


@pytest.fixture
def call_raising(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[BaseException], int]]:
    """Calls a stage whose function raises, without signal handlers in this process."""

    def called(error: BaseException, run: str = "user:stage") -> int:
        def function(_config: dict[str, Any], _context: object) -> None:
            raise error

        monkeypatch.setenv("SLURM_JOBS_ENTRY_POINT", run)
        monkeypatch.setattr(call, "install_stop_handler", lambda: None)
        monkeypatch.setattr(call, "register_stacks", lambda _task_dir, _rank: None)
        monkeypatch.setattr(call, "find_function", lambda _run: function)
        path = tmp_path / "rank-00000.context.json"
        write_json_atomic(path, record_to_json(make_context("s", tmp_path)))
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


@pytest.mark.parametrize("error", [ValueError("x" * 3_000_000), StageConfigError("x " * 2_000_000)])
def test_an_unbounded_message_is_neither_recorded_nor_logged_whole(
    tmp_path: Path,
    call_raising: Callable[[BaseException], int],
    error: BaseException,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call_raising(error)
    assert error_path(tmp_path, 0).stat().st_size < 2 * MAX_LINE_CHARS
    logged = capsys.readouterr().err
    assert max(map(len, logged.splitlines())) <= MAX_LINE_CHARS + len("error: ")
    assert "characters left out" in logged


@pytest.mark.parametrize(
    ("run", "error", "has_traceback"),
    [
        ("preprocess", StageConfigError("no such row"), False),
        ("preprocess", StageError("no such row"), True),
        ("preprocess", ValueError("no such row"), True),
        ("user:stage", StageConfigError("no such row"), True),
    ],
)
def test_a_refusal_of_a_built_in_stage_has_no_traceback(
    call_raising: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    run: str,
    error: BaseException,
    has_traceback: bool,
) -> None:
    call_raising(error, run)
    logged = capsys.readouterr().err
    assert "no such row" in logged
    assert ("Traceback (most recent call last)" in logged) == has_traceback


FORKS = """
import os, sys

def run(config, context):
    if not (pid := os.fork()):
        print("the child", end="")
        {leave}
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    records = [path.name for path in context.spec_dir.glob("rank-*.re*")]
    (context.spec_dir / "code").write_text(f"{{code}} {{records}}")
    return {{"of": "the parent"}}
"""


@pytest.mark.parametrize(
    ("leave", "code"),
    [("return {'of': 'the child'}", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)],
)
def test_a_forked_child_that_leaves_the_function_records_nothing(
    tmp_path: Path, leave: str, code: int
) -> None:
    (tmp_path / "forks.py").write_text(FORKS.format(leave=leave))
    path = tmp_path / "rank-00000.context.json"
    write_json_atomic(path, record_to_json(make_context("s", tmp_path)))
    script = (
        f"import sys, pathlib; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"from slurm_jobs.worker.call import run_stage\n"
        f"sys.exit(run_stage(pathlib.Path({str(path)!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "SLURM_JOBS_ENTRY_POINT": "forks:run"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "the child")
    assert ("ValueError" in done.stderr) == (code == 1)
    assert (tmp_path / "code").read_text() == f"{code} []"
    assert read_json(result_path(tmp_path, 0)) == {"of": "the parent"}
    assert not error_path(tmp_path, 0).exists()
    assert read_json(returned_path(tmp_path, 0))["exit_code"] == 0


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_that_was_requested_is_no_error_of_the_stage(
    tmp_path: Path, call_raising: Callable[[BaseException], int], error: BaseException
) -> None:
    with pytest.raises(type(error)):
        call_raising(error)
    assert not error_path(tmp_path, 0).exists()


@pytest.fixture
def user_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules a stage may name."""
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    return tmp_path


def test_a_builtin_stage_without_its_packages_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['PIL'] = None\n"  # as if it were not installed
        "from slurm_jobs.worker.call import find_function\n"
        "find_function('preprocess')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = done.stderr.splitlines()[-1]
    assert "`run: preprocess`: " in said
    assert f"in {sys.executable}; install `slurm-jobs[train]` in that Python" in said
    assert said.endswith("or name the stage's `python:`")
    assert "beside the spec" not in said


def test_a_builtin_stage_that_imports_late_says_the_same(
    user_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user_dir / "late_importer.py").write_text(NEEDS)
    monkeypatch.setitem(call.BUILTIN_ENTRY_POINTS, "train", "late_importer:run")
    with pytest.raises(StageConfigError, match=r"no_such_module_here.*install `slurm-jobs\[train"):
        call.call_function("train", make_context("train", user_dir))


def test_what_a_users_function_lacks_is_its_own_matter(user_dir: Path) -> None:
    (user_dir / "users_importer.py").write_text(NEEDS)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        call.call_function("users_importer:run", make_context("s", user_dir))


def test_a_missing_module_is_refused_with_advice_to_put_it_by_the_spec(
    user_dir: Path,
) -> None:
    assert user_dir
    with pytest.raises(StageConfigError, match="put it next to the spec") as caught:
        call.find_function("no_such_module_here:run")
    assert "slurm-jobs[train]" not in str(caught.value)


def test_a_result_that_no_command_could_read_again_fails_its_stage(tmp_path: Path) -> None:
    context = make_context("s", tmp_path)
    with pytest.raises(StageConfigError, match=r"20 MiB as JSON.*context\.output_dir"):
        call.result_text("m:f", {"table": "x" * (20 << 20)}, context)
    assert call.result_text("m:f", {"table": "x" * (1 << 20)}, context)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"a.txt": 3, "nofile.txt": 3}, "has no file of this name"),
        ({"a.txt": 4}, "'a.txt' with 4 bytes, but"),
        ({"a.txt": 4}, "has this file with 3 bytes"),
        ({"a.txt/b": 3}, "has no file of this name"),
        ({"a\0b": 3}, "has no file of this name"),
        ({"x" * 256: 3}, "has no file of this name"),
        ({"loop": 3}, "has no file of this name"),
        ({"sub": 4096}, "has no file of this name"),
        ({"": 4096}, "has no file of this name"),
        ({"a.txt": True}, "a whole number"),
        ({"../a.txt": 3}, "'../a.txt': write it relative to output_dir"),
        ({"/a.txt": 3}, "'/a.txt': write it relative to output_dir"),
    ],
)
def test_outputs_that_a_resume_would_not_find_fail_their_stage(
    tmp_path: Path, outputs: dict[str, int], words: str
) -> None:
    context = make_context("s", tmp_path)
    for folder in (context.output_dir, context.output_dir.parent):
        (folder / "a.txt").write_text("abc")
    (context.output_dir / "sub").mkdir()
    (context.output_dir / "loop").symlink_to("loop")
    with pytest.raises(StageConfigError) as caught:
        call.result_text("m:f", {"outputs": outputs}, context)
    assert words in str(caught.value)


def test_numbers_that_are_not_finite_fail_no_stage(tmp_path: Path) -> None:
    result = {"all": [float("inf"), np.float32("-inf")], "count": 3}
    text = call.result_text("m:f", result, make_context("s", tmp_path))
    assert json.loads(text) == result


def test_outputs_with_their_sizes_are_accepted(tmp_path: Path) -> None:
    context = make_context("s", tmp_path)
    (context.output_dir / "a.txt").write_text("abc")
    assert call.result_text("m:f", {"outputs": {"a.txt": 3}}, context)


def test_outputs_are_checked_for_the_rank_whose_result_counts(tmp_path: Path) -> None:
    context = make_context("s", tmp_path, rank=1, num_ranks=2)
    assert call.result_text("m:f", {"outputs": {"not_yet.txt": 3}}, context)
