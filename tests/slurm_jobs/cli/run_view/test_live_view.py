"""The live view on screens of any size: what stays visible, and what a log cannot do."""

from pathlib import Path

import pytest

from slurm_jobs.cli.run_view.live_view import FOOTER, printable
from slurm_jobs.cli.run_view.problems import Failure
from slurm_jobs.cli.run_view.run_snapshot import RunView
from slurm_jobs.status.slice_status import Status
from tests.slurm_jobs.cli.run_view.shown_view import shown
from tests.slurm_jobs.cli.statuses import seen, stage

TAIL = tuple(f"line {number} " + "x" * 300 for number in range(8))
FAILURE = Failure(
    line="preprocess slice 77 failed (sacct: OUT_OF_MEMORY): " + "no memory " * 30,
    log=Path("/runs/r/logs/preprocess/s00077.a0001.rank-00000.log"),
    tail=TAIL,
)


def crowded() -> RunView:
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
    assert "could not be queried: sacct" in text
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


def test_the_newest_lines_of_the_failed_log_stay_on_a_small_screen() -> None:
    text = shown(crowded(), 120, 50)
    assert [line.split()[1] for line in text if line.startswith("  line ")] == list("01234567")
    few = [line.split()[1] for line in shown(crowded(), 120, 20) if line.startswith("  line ")]
    assert few
    assert few[-1] == "7"


@pytest.mark.parametrize("word", ["waiting", "completed", "stranded"])
def test_an_array_of_which_all_slices_are_alike_takes_no_room_for_a_grid(word: Status) -> None:
    assert not [line for line in shown(seen(stage("a", [word] * 40))) if "40 slices" in line]


def test_several_arrays_share_the_room() -> None:
    words: list[Status] = ["running", *["waiting"] * 4999]
    lines = shown(seen(*(stage(f"stage{n}", words) for n in range(4))), 100, 30)
    assert len([line for line in lines if "5000 slices" in line]) == 4
    assert len(lines) < 30


def test_at_the_end_nothing_is_reported_about_interrupting() -> None:
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
