"""What is printed of logs as they grow."""

from pathlib import Path

import pytest

from slurm_jobs.cli.run_logs.growing_logs import GrowingLogs


def write(log: Path, data: bytes) -> None:
    """Logs grow by these bytes; nothing is waited for."""
    with log.open("ab") as stream:
        stream.write(data)


def test_a_character_that_comes_in_two_writes_is_printed_once_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [tmp_path / name for name in ("a.log", "b.log")]
    growing = GrowingLogs()
    for first, second in ((b"ma\xc3", b"na\xe2\x82"), (b"\xb1ana\n", b"\xac\n")):
        for log, data in zip(logs, (first, second), strict=True):
            write(log, data)
        growing.print_added(logs)
    printed = capsys.readouterr().out
    assert printed == "ma==> b.log <==\nna==> a.log <==\nñana\n==> b.log <==\n€\n"


def test_bytes_that_are_no_character_are_replaced_and_hold_nothing_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    write(log, b"\xff fine\n")
    GrowingLogs().print_added([log])
    assert capsys.readouterr().out == "\N{REPLACEMENT CHARACTER} fine\n"


def test_a_log_that_did_not_grow_is_not_named_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    write(first, b"one\n")
    write(second, b"")
    growing = GrowingLogs()
    growing.print_added([first, second])
    growing.print_added([first, second])
    assert capsys.readouterr().out == "one\n"


def test_a_log_without_an_end_to_show_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [tmp_path / name for name in ("a.log", "b.log", "c.log")]
    for log, data in zip(logs, (b"one\n", b"", b"two\n"), strict=True):
        write(log, data)
    GrowingLogs().print_ends(logs, 5)
    assert capsys.readouterr().out == "one\n==> c.log <==\ntwo\n"
