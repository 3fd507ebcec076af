"""What ranks are told, and what their records amount to, as the keepers write them."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import NO_RETRY_EXIT_CODE, STOPPED_EXIT_CODE, StageConfigError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.worker import launch
from slurm_jobs.worker.job_identity import RANK_VARIABLES
from slurm_jobs.worker.late_exit import note_return
from slurm_jobs.worker.launch import RankProcesses, RanksEnd, read_end
from slurm_jobs.worker.rank import (
    context_path,
    error_path,
    exit_path,
    result_path,
    started_path,
    write_error,
)
from slurm_jobs.worker.stacks import REQUEST_SIGNAL
from tests.slurm_jobs.worker.orders import environment, order


def ended(task_dir: Path, rank: int, code: int = 0, *, at_s: float = 0.0, **values: Any) -> None:
    record = {
        "rank": rank,
        "node": f"n{rank // 2}",
        "exit_code": code,
        "signal": None,
        "stopped": code == STOPPED_EXIT_CODE,
        "asked": True,
        "ended_unix_s": at_s,
        "error": None,
    }
    write_json_atomic(exit_path(task_dir, rank), {**record, **values})


def error(
    name: str,
    message: str,
    *,
    retryable: bool = True,
    kind: str = "exception",
    raised_s: float = 0.0,
) -> dict[str, Any]:
    return {
        "type": name,
        "message": message,
        "retryable": retryable,
        "kind": kind,
        "resumes": [],
        "raised_unix_s": raised_s,
    }


def test_an_attempt_whose_ranks_all_ended_well_is_completed(tmp_path: Path) -> None:
    for rank in range(4):
        ended(tmp_path, rank)
    assert read_end(tmp_path, 4, [0]) == RanksEnd(outcome="completed")


def test_ranks_that_outlived_their_functions_are_noted_in_fields(tmp_path: Path) -> None:
    ended(tmp_path, 0)
    for rank in (1, 2, 3):
        ended(tmp_path, rank, note="its process was ended 120 s later")
    end = read_end(tmp_path, 4, [0])
    assert end.rank_note == RankNote(
        rank=1,
        node="n0",
        after=": its process was ended 120 s later",
        more=" (and 2 more ranks)",
    )
    assert end.reason == "rank 1 on n0: its process was ended 120 s later (and 2 more ranks)"


def test_the_earliest_failure_is_the_reason_whatever_its_rank(tmp_path: Path) -> None:
    ended(tmp_path, 0, 143, at_s=30.0, signal=15)
    ended(tmp_path, 1, 1, at_s=20.0, error=error("OSError", "peer has gone"))
    ended(tmp_path, 2, 1, at_s=10.0, error=error("ValueError", "a bad sample\nand more"))
    ended(tmp_path, 3, at_s=5.0)
    end = read_end(tmp_path, 4, [1])
    assert end.outcome == "failed"
    assert (end.failed_rank, end.failed_node, end.exit_code) == (2, "n1", 1)
    assert end.reason == "rank 2 on n1: ValueError: a bad sample"
    assert end.retryable


@pytest.mark.parametrize(
    ("record", "reason", "kind"),
    [
        ({"code": 137, "signal": 9}, " was killed by SIGKILL", "killed"),
        ({"code": 3}, " ended with exit code 3", "exit code"),
        (
            {"code": 127},
            " ended with exit code 127 (in a shell: a command was not found)",
            "missing command",
        ),
        (
            {"code": 1, "error": error("KeyError", "", kind="wrong data")},
            ": KeyError: ",
            "wrong data",
        ),
    ],
)
def test_a_failure_says_what_ended_the_rank(
    tmp_path: Path, record: dict[str, Any], reason: str, kind: str
) -> None:
    ended(tmp_path, 0, **record)
    end = read_end(tmp_path, 1, [1])
    assert (end.reason, end.kind) == (f"rank 0 on n0{reason}", kind)
    assert (end.exit_code, end.signal) == (record["code"], record.get("signal"))


def test_a_permanent_error_is_not_retried(tmp_path: Path) -> None:
    wrong = error("StageConfigError", "no GPU", retryable=False)
    ended(tmp_path, 0, NO_RETRY_EXIT_CODE, error=wrong)
    assert not read_end(tmp_path, 1, [NO_RETRY_EXIT_CODE]).retryable


@pytest.mark.parametrize(
    ("raised", "retryable"), [(StageConfigError("x"), False), (ValueError("x"), True)]
)
def test_an_error_is_recorded_with_whether_it_is_retryable(
    tmp_path: Path, raised: Exception, *, retryable: bool
) -> None:
    write_error(tmp_path, 3, raised)
    recorded = read_json(error_path(tmp_path, 3))
    assert recorded["retryable"] is retryable
    assert recorded["type"] == type(raised).__name__


LOST = error("RuntimeError", "Connection closed by peer", kind="collective")


def test_the_peers_of_a_rank_that_raised_are_not_to_blame(tmp_path: Path) -> None:
    """A peer notices the lost connection before the process has ended, or by another clock."""
    ended(tmp_path, 0, 1, at_s=10.0, error=LOST)
    ended(tmp_path, 1, 1, at_s=20.0, error=error("ValueError", "a bad sample"))
    ended(tmp_path, 2, 143, at_s=15.0, signal=15)
    end = read_end(tmp_path, 3, [1])
    assert (end.failed_rank, end.kind) == (1, "exception")
    assert end.reason == "rank 1 on n0: ValueError: a bad sample"


def test_an_exception_after_the_first_process_has_ended_is_no_cause(tmp_path: Path) -> None:
    """Such as that of a data loader whose workers got SIGTERM together with the other ranks."""
    ended(tmp_path, 0, 1, at_s=10.0, error=LOST)
    late = error("RuntimeError", "a worker was killed", raised_s=10.5)
    ended(tmp_path, 1, 1, at_s=11.0, error=late)
    assert read_end(tmp_path, 2, [1]).failed_rank == 0


def test_ranks_that_were_ended_after_a_lost_connection_are_not_to_blame(tmp_path: Path) -> None:
    ended(tmp_path, 0, 1, at_s=10.0, error=LOST)
    ended(tmp_path, 1, 143, at_s=15.0, signal=15)
    end = read_end(tmp_path, 2, [1])
    assert (end.failed_rank, end.kind) == (0, "collective")


def test_of_a_lost_connection_the_rank_without_a_record_is_named(tmp_path: Path) -> None:
    ended(tmp_path, 0, 1, at_s=10.0, error=LOST)
    write_json_atomic(started_path(tmp_path, 1), {"rank": 1, "node": "n7"})
    end = read_end(tmp_path, 2, [1])
    assert (end.failed_rank, end.kind) == (0, "collective")
    assert "Connection closed by peer; rank 1 on n7 ended without a record" in end.reason
    killed = read_end(tmp_path, 2, [1], has_killed=True)
    assert killed.reason.endswith("Connection closed by peer")


def test_a_rank_that_failed_is_the_reason_rather_than_one_without_a_record(tmp_path: Path) -> None:
    ended(tmp_path, 1, 1, error=error("ValueError", "x"))
    assert read_end(tmp_path, 2, [-signal.SIGKILL, 1]).failed_rank == 1


@pytest.mark.parametrize(
    ("codes", "exit_code"), [([-9], 137), ([0, 1], 1), ([0, 0], 1), ([0, -15], 143)]
)
def test_a_rank_that_started_and_left_no_record_fails_the_attempt_by_name(
    tmp_path: Path, codes: list[int], exit_code: int
) -> None:
    ended(tmp_path, 0)
    write_json_atomic(started_path(tmp_path, 1), {"rank": 1, "node": "n7"})
    end = read_end(tmp_path, 2, codes)
    assert (end.outcome, end.exit_code) == ("failed", exit_code)
    assert (end.failed_rank, end.failed_node) == (1, "n7")
    assert "rank 1 on n7 ended without a record" in end.reason
    assert end.retryable


def test_a_rank_that_left_no_sign_may_or_may_not_have_been_started_by_srun(tmp_path: Path) -> None:
    end = read_end(tmp_path, 2, [1])
    assert (end.outcome, end.failed_rank, end.failed_node) == ("failed", 0, None)
    assert end.reason == (
        "rank 0 has left no sign: srun did not start its keeper, or that was gone at once (srun "
        "ended with exit code 1)"
    )


def test_a_keeper_under_srun_that_wrote_a_context_counts_as_started(tmp_path: Path) -> None:
    context_path(tmp_path, 0).touch()
    assert "the keeper of rank 0 started and was gone" in read_end(tmp_path, 2, [1]).reason


@pytest.mark.parametrize(
    ("code", "ended_how"),
    [(-signal.SIGKILL, "was killed by SIGKILL"), (1, "ended with exit code 1")],
)
def test_a_started_keeper_is_not_reported_as_never_started(
    tmp_path: Path, code: int, ended_how: str
) -> None:
    ended(tmp_path, 0)
    end = read_end(tmp_path, 2, [0, code])
    assert (end.outcome, end.failed_rank, end.failed_node) == ("failed", 1, None)
    assert end.reason == f"the keeper of rank 1 {ended_how} before it had noted the rank's start"


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ([-9, -9], "the keeper of rank 1 was killed by SIGKILL before"),
        ([137], "(srun ended with exit code 137)"),
    ],
    ids=["keepers", "srun"],
)
def test_a_rank_without_keeper_does_not_hide_how_the_missing_one_ended(
    tmp_path: Path, codes: list[int], reason: str
) -> None:
    write_json_atomic(started_path(tmp_path, 0), {"rank": 0, "node": "n0"})
    note_return(tmp_path, 0, 0, 1.0)
    result_path(tmp_path, 0).write_text("{}")
    end = read_end(tmp_path, 2, codes)
    assert (end.failed_rank, end.exit_code) == (1, 137)
    assert reason in end.reason


def test_ranks_that_stopped_on_request_stop_the_attempt(tmp_path: Path) -> None:
    ended(tmp_path, 0, STOPPED_EXIT_CODE)
    ended(tmp_path, 1)
    end = read_end(tmp_path, 2, [0, 0])
    assert (end.outcome, end.exit_code) == ("stopped", STOPPED_EXIT_CODE)


def test_a_stop_of_a_function_counts_as_failure_unless_a_rank_was_asked(
    tmp_path: Path,
) -> None:
    ended(tmp_path, 0, STOPPED_EXIT_CODE, asked=False)
    ended(tmp_path, 1, STOPPED_EXIT_CODE, asked=False, at_s=1.0)
    end = read_end(tmp_path, 2, [0])
    assert (end.outcome, end.exit_code, end.failed_rank) == ("failed", STOPPED_EXIT_CODE, 0)
    assert "exit code 75 (stopped and saved), and was not asked to stop" in end.reason
    assert read_end(tmp_path, 2, [0], was_asked=True).outcome == "stopped"
    ended(tmp_path, 1, STOPPED_EXIT_CODE, asked=True, at_s=1.0)
    assert read_end(tmp_path, 2, [0]).outcome == "stopped"


def test_the_exit_code_for_stopped_is_a_failure_without_a_stop_request(tmp_path: Path) -> None:
    ended(tmp_path, 0, STOPPED_EXIT_CODE, stopped=False)
    end = read_end(tmp_path, 1, [STOPPED_EXIT_CODE])
    assert (end.outcome, end.exit_code, end.retryable) == ("failed", STOPPED_EXIT_CODE, True)
    assert end.reason == f"rank 0 on n0 ended with exit code {STOPPED_EXIT_CODE}"


@pytest.mark.parametrize("other", [1, None], ids=["failed", "without a record"])
def test_an_attempt_is_stopped_only_if_no_rank_went_wrong(
    tmp_path: Path, other: int | None
) -> None:
    ended(tmp_path, 0, STOPPED_EXIT_CODE)
    if other is not None:
        ended(tmp_path, 1, other)
    end = read_end(tmp_path, 2, [0, 1])
    assert (end.outcome, end.failed_rank) == ("failed", 1)


def test_an_srun_that_complains_of_ranks_that_ended_well_is_not_hidden(tmp_path: Path) -> None:
    ended(tmp_path, 0)
    ended(tmp_path, 1)
    end = read_end(tmp_path, 2, [3])
    assert (end.outcome, end.exit_code, end.failed_rank) == ("failed", 3, None)
    assert "All ranks ended well" in end.reason


def test_srun_does_not_inherit_the_variables_of_the_surrounding_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in RANK_VARIABLES:
        monkeypatch.setenv(name, "7")
    monkeypatch.setattr(signal, "signal", lambda _number, _handler: None)  # this process's own stay
    ranks = RankProcesses(order(nodes=2), environment("n1", "n2"))
    assert ranks._variables(None).keys().isdisjoint(RANK_VARIABLES)
    assert [ranks._variables(1)[name] for name in RANK_VARIABLES] == ["1", "0", "1", "n2"]


def test_an_error_that_names_a_file_that_is_no_utf8_keeps_its_words(tmp_path: Path) -> None:
    message = os.fsdecode(b"no such file: caf\xe9.txt")
    write_error(tmp_path, 0, StageConfigError(message))
    ended(tmp_path, 0, NO_RETRY_EXIT_CODE, error=read_json(error_path(tmp_path, 0)))
    end = read_end(tmp_path, 1, [NO_RETRY_EXIT_CODE])
    assert end.reason == f"rank 0 on n0: StageConfigError: {message}"


SRUN = """\
#!/bin/bash
setsid bash -c 'while kill -0 $0; do sleep 0.05; done; sleep 0.3; mv late/* .' $$ 2> /dev/null &
trap "" TERM
echo '{"node": "n0"}' > rank-00000.started.json
exec sleep 600
"""


def test_a_superseded_attempt_ends_after_the_ranks_that_outlive_their_srun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late").mkdir()
    ended(tmp_path / "late", 0, 143, signal=15)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(signal, "signal", lambda _number, _handler: None)  # this process's own stay
    monkeypatch.setattr(launch, "FENCE_POLL_S", 0.0)
    monkeypatch.setattr(launch, "RANK_KILL_WAIT_S", 0.2)
    later = replace(environment("n1", "n2"), deadline_unix_s=time.time() + 3600)
    ranks = RankProcesses(order(tmp_path), later)

    def is_fenced_off() -> bool:
        return started_path(tmp_path, 0).exists()

    assert ranks.run(tmp_path, is_fenced_off=is_fenced_off).outcome == "superseded"
    assert exit_path(tmp_path, 0).exists()


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Gives this process back its handlers of the signals that a supervisor takes."""
    numbers = (STOP_SIGNAL, signal.SIGTERM, REQUEST_SIGNAL)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize(
    ("signals", "left_s", "expected"),
    [
        ([STOP_SIGNAL], 100, "time limit"),
        ([STOP_SIGNAL, signal.SIGTERM], 100, "time limit"),
        ([STOP_SIGNAL], 1000, "stop signal"),
        ([signal.SIGTERM, STOP_SIGNAL], 100, "sigterm"),
        ([REQUEST_SIGNAL], 100, None),
    ],
)
def test_the_first_signal_says_what_asked_an_attempt_to_stop(
    signals: list[signal.Signals], left_s: float, expected: str | None
) -> None:
    job = replace(environment("n1"), deadline_unix_s=time.time() + left_s)
    ranks = RankProcesses(order(nodes=1), job)  # its stop signal comes 60 s before the limit
    for number in signals:
        os.kill(os.getpid(), number)
    assert ranks.stop_request == expected
