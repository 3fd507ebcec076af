import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from slurm_jobs.cli.problems import Failure
from slurm_jobs.cli.run_view import FOOTER, Seen, live_view, printable
from slurm_jobs.status import Status
from tests.slurm_jobs.cli.statuses import NOW_S, seen, stage

TAIL = tuple(f"line {number} " + "x" * 300 for number in range(8))
FAILURE = Failure(
    line="preprocess slice 77 failed (sacct: OUT_OF_MEMORY): " + "no memory " * 30,
    log=Path("/runs/r/logs/preprocess/s00077.a0001.rank-00000.log"),
    tail=TAIL,
)


def shown(found: Seen, width: int = 120, height: int = 40, *, is_over: bool = False) -> list[str]:
    """The lines that the view puts on a terminal of that size, colours left out."""
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(live_view(found, console, now_unix_s=NOW_S, is_over=is_over))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def crowded() -> Seen:
    words: list[Status] = ["completed"] * 6000 + ["running"] * 64 + ["waiting"] * 3936
    words[77] = "failed"
    return seen(
        stage("preprocess", words, status="running"),
        stage("consolidate", ["waiting"]),
        stage("train", ["waiting"]),
        failure=FAILURE,
        problems=("sacct: `sacct` failed with exit code 1: Connection refused " + "x" * 200,),
    )


@pytest.mark.parametrize("width", [60, 120, 200])
@pytest.mark.parametrize("height", [16, 24, 50])
def test_ten_thousand_slices_and_a_long_log_fit_the_screen(width: int, height: int) -> None:
    lines = shown(crowded(), width, height)
    assert len(lines) < height
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    assert "last failure: preprocess slice 77" in text
    assert "could not be asked: sacct" in text
    assert FOOTER in text


@pytest.mark.parametrize("width", [60, 120, 200])
def test_a_failure_is_seen_in_the_grid_without_colour(width: int) -> None:
    lines = shown(crowded(), width, 30)
    heading = next(i for i, line in enumerate(lines) if "10000 slices" in line)
    grid = [line for line in lines[heading + 1 :] if line.split()[0].isdecimal()]
    assert sum(line.count("F") for line in grid) == 1
    assert "F" in grid[0]


def test_a_screen_that_is_far_too_small_still_names_the_stages() -> None:
    lines = shown(crowded(), 60, 8)
    assert [line for line in lines if line.startswith("preprocess")]


def test_the_end_of_the_failed_tasks_log_is_shown_newest_lines_first_to_stay() -> None:
    text = shown(crowded(), 120, 50)
    assert [line.split()[1] for line in text if line.startswith("  line ")] == list("01234567")
    few = [line.split()[1] for line in shown(crowded(), 120, 20) if line.startswith("  line ")]
    assert few
    assert few[-1] == "7"


def test_age_source_and_expected_start_are_told() -> None:
    view = seen(
        stage("train", ["waiting"], reason="Priority", start_unix_s=NOW_S + 7500),
        status="waiting",
    )
    text = " ".join(" ".join(shown(view, 160)).split())
    assert "(asked 4 s ago)" in text
    assert "squeue, 4 s ago" in text
    assert "Priority; expected to start" in text
    assert "(in 2 h 05 min)" in text


def test_an_expected_start_that_has_passed_is_not_told() -> None:
    view = seen(stage("train", ["waiting"], reason="Priority", start_unix_s=NOW_S - 1))
    assert "expected" not in " ".join(shown(view, 160))


def test_progress_of_a_running_task_is_shown() -> None:
    view = seen(stage("train", ["running"]), progress={"train": "120/500 steps loss 0.3"})
    assert "120/500 steps loss 0.3" in " ".join(shown(view))


@pytest.mark.parametrize("word", ["waiting", "completed", "stranded"])
def test_an_array_of_which_all_slices_are_alike_takes_no_room_for_a_grid(word: Status) -> None:
    assert not [line for line in shown(seen(stage("a", [word] * 40))) if "40 slices" in line]


def test_several_arrays_share_the_room() -> None:
    words: list[Status] = ["running", *["waiting"] * 4999]
    lines = shown(seen(*(stage(f"stage{n}", words) for n in range(4))), 100, 30)
    assert len([line for line in lines if "5000 slices" in line]) == 4
    assert len(lines) < 30


def test_a_reason_longer_than_a_line_is_wrapped_and_not_cut() -> None:
    reason = "rank 3 on gpu17: RuntimeError: " + " ".join(f"word{n}" for n in range(12))
    view = seen(stage("a", ["failed"]), status="failed", failure=Failure(line=reason))
    assert reason in " ".join(line.strip() for line in shown(view, 60))


def test_at_the_end_nothing_is_said_of_interrupting() -> None:
    assert FOOTER not in "\n".join(shown(crowded(), is_over=True))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[2Jgone\x07", "red and gone"),
        (" 10%|#    |\r 20%|##   |\r", " 20%|##   |"),
        ("a\tb", "a   b"),
        ("[bold]no markup[/bold]", "[bold]no markup[/bold]"),
        ("\r", ""),
    ],
)
def test_what_a_log_holds_cannot_move_the_cursor(line: str, expected: str) -> None:
    assert printable(line) == expected


def test_a_running_task_has_a_bar_that_needs_no_colour() -> None:
    found = seen(
        stage("train", ["running"]),
        progress={"train": "250/1000 steps loss 0.5000, 12,000 tokens/s, 3 % waiting for data"},
    )
    found = dataclasses.replace(found, shares={"train": 0.25})
    assert f"train [{'#' * 10}{'.' * 30}]  25 %" in shown(found)
    assert "tokens/s, 3 % waiting for data" in "\n".join(shown(found, 200))
    assert not any("#" in line for line in shown(found, 20))


def test_bars_leave_room_on_a_small_screen() -> None:
    stages = [stage(f"s{number}", ["running"]) for number in range(8)]
    found = dataclasses.replace(seen(*stages), shares={each.stage.name: 0.5 for each in stages})
    assert len(shown(found, 100, 14)) < 14
