"""Lines of log files: the last ones, and numbered as editors count them."""

import itertools
from pathlib import Path

import pytest

from slurm_jobs.cli.run_logs import log_files
from slurm_jobs.cli.run_logs.log_files import last_lines, numbered_lines


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("num_lines", [0, 1, 2, 5, 99])
def test_the_last_lines_are_those_at_the_end_wherever_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_lines: int, ending: str
) -> None:
    monkeypatch.setattr(log_files, "_BLOCK_BYTES", 7)
    lines = [f"line {number} " + "é" * number for number in range(6)]
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + ending)
    assert last_lines(log, num_lines) == (lines[-num_lines:] if num_lines else [])


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "a", "a\r\nb\r\n"])
def test_short_logs_have_the_lines_that_they_have(tmp_path: Path, text: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(text.encode())
    expected = text.replace("\r\n", "\n").split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    assert last_lines(log, 9) == expected
    assert [line for _, line in numbered_lines(log)] == expected


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        stream.truncate(8 * 2**40)  # a hole of 8 TiB, which no reader gets through
        stream.seek(0, 2)
        stream.write(b"\nthe end\n")
    assert last_lines(log, 1) == ["the end"]


def test_lines_are_counted_as_editors_count_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes("a\u2028b\x0cc\rd\n\xff\n".encode("latin-1", "ignore") + b"\xff\n")
    numbers = [number for number, _ in numbered_lines(log)]
    assert numbers == list(itertools.islice(itertools.count(1), 3))
