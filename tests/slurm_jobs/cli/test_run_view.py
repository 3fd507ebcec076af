"""What a look at a run shows: progress, the grid of slices, the live view."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from slurm_jobs.cli.run_view.live_view import FOOTER, live_view, printable
from slurm_jobs.cli.run_view.problems import Failure
from slurm_jobs.cli.run_view.run_snapshot import RunView, task_progress
from slurm_jobs.cli.run_view.slice_grid import LETTERS, grid_lines, legend, make_grid
from slurm_jobs.formats.records.activity import ActiveProgress, Activity
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.slice_status import SliceStatus, Status
from slurm_jobs.worker.rank import exit_path
from tests.slurm_jobs.cli.statuses import NOW_S, seen, stage
from tests.slurm_jobs.runs import job


def part(attempt: int) -> SliceStatus:
    return SliceStatus(
        slice_index=0, status="running", attempt=attempt, source="squeue", job=job("7")
    )


@pytest.mark.parametrize(("attempt", "before"), [(1, ""), (2, "attempt 2: ")])
def test_reported_progress_of_a_task_is_shown_as_text_and_as_a_share(
    tmp_path: Path, attempt: int, before: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    Progress(folder, "steps", 400).update(100, detail="loss 0.5000, 2 min left")
    text = f"{before}100/400 steps loss 0.5000, 2 min left"
    assert task_progress(tmp_path, "train", part(attempt)) == (text, 0.25)


def show(folder: Path, *, num_done: int | None, activity: Activity) -> None:
    progress = ActiveProgress(folder)
    if num_done is not None:
        progress.count("steps", 200)
        progress.update(num_done, detail="loss 0.5")
    progress.show(activity)


@pytest.mark.parametrize(
    ("attempt", "num_done", "activity", "text"),
    [
        (1, None, "importing", "importing"),
        (2, 0, "compiling", "attempt 2: compiling, 0/200 steps"),
        (1, 200, "evaluating", "evaluating, 200/200 steps"),
    ],
)
def test_what_a_task_does_is_shown_before_its_count(
    tmp_path: Path, attempt: int, num_done: int | None, activity: Activity, text: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    show(folder, num_done=num_done, activity=activity)
    share = None if num_done is None else num_done / 200
    assert task_progress(tmp_path, "train", part(attempt)) == (text, share)


@pytest.mark.parametrize(
    ("attempt", "num_done", "text"),
    [(1, 200, "200/200 steps loss 0.5"), (1, None, ""), (2, None, "attempt 2")],
)
def test_a_rank_that_has_ended_does_nothing_any_more(
    tmp_path: Path, attempt: int, num_done: int | None, text: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    show(folder, num_done=num_done, activity="evaluating")
    exit_path(folder, 0).touch()
    assert task_progress(tmp_path, "train", part(attempt))[0] == text


def test_progress_of_an_older_version_has_no_activity(tmp_path: Path) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, 1)
    folder.mkdir(parents=True)
    values = {"done": 1, "total": 2, "unit": "steps", "detail": "", "updated_unix_s": 0.0}
    (folder / "progress.json").write_text(json.dumps(values))
    assert task_progress(tmp_path, "train", part(1)) == ("1/2 steps", 0.5)


@pytest.mark.parametrize(("attempt", "text"), [(1, ""), (3, "attempt 3")])
def test_a_task_that_has_written_nothing_has_no_share(
    tmp_path: Path, attempt: int, text: str
) -> None:
    assert task_progress(tmp_path, "train", part(attempt)) == (text, None)


def test_a_task_of_nothing_has_no_share(tmp_path: Path) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, 1)
    folder.mkdir(parents=True)
    Progress(folder, "rows", 0).update(0)
    assert task_progress(tmp_path, "train", part(1)) == ("0/0 rows", None)


def statuses(num_slices: int, **others: int) -> list[Status]:
    """All complete, but for one slice of each status that is named."""
    found: list[Status] = ["completed"] * num_slices
    for word, index in others.items():
        found[index] = word  # type: ignore[call-overload]
    return found


@pytest.mark.parametrize("width", [20, 60, 120, 200])
@pytest.mark.parametrize("num_slices", [1, 9, 400, 1001, 10_000, 100_000])
@pytest.mark.parametrize("max_rows", [1, 5, 20])
def test_a_grid_fits_and_shows_every_slice_once(num_slices: int, width: int, max_rows: int) -> None:
    words = statuses(num_slices)
    grid = make_grid(words, width=width, max_rows=max_rows)
    num_cells = sum(len(row) for row in grid.rows)
    assert (num_cells - 1) * grid.slices_per_cell < num_slices <= num_cells * grid.slices_per_cell
    assert len(grid.rows) <= max_rows
    lines = grid_lines(words, width=width, max_rows=max_rows)
    assert max(len(line.plain) for line in lines) <= width
    assert sum(line.plain.count("C") for line in lines) == num_cells


def test_a_few_slices_have_a_cell_each() -> None:
    lines = grid_lines(statuses(12, running=3, failed=11), width=60, max_rows=5)
    assert [line.plain for line in lines] == [" 0 CCCRCCCCCC CF"]


def test_rows_begin_with_the_number_of_their_first_slice() -> None:
    lines = grid_lines(statuses(45), width=25, max_rows=5)
    assert [line.plain.split()[0] for line in lines] == ["0", "20", "40"]
    condensed = make_grid(statuses(10_000), width=60, max_rows=4)
    assert condensed.slices_per_cell == 50
    assert condensed.first_slices == [0, 2500, 5000, 7500]


@pytest.mark.parametrize("index", [0, 4321, 9999])
def test_one_failure_among_ten_thousand_slices_is_seen(index: int) -> None:
    words = statuses(10_000, failed=index)
    words[index - 1 if index else 1] = "running"
    (line,) = grid_lines(words, width=60, max_rows=1)
    assert line.plain.count("F") == 1


def test_the_worst_of_a_cell_wins() -> None:
    worst_first: list[Status] = list(LETTERS)
    assert worst_first[0] == "failed"
    assert worst_first[-1] == "completed"
    for number, word in enumerate(worst_first):
        cell: list[Status] = [*worst_first[number:], *(["completed"] * 93)]
        grid = make_grid(cell * 200, width=20, max_rows=1)
        assert set(grid.rows[0]) == {word}


def test_every_status_has_a_letter_of_its_own() -> None:
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_the_legend_explains_the_shown_statuses_and_the_slices_per_cell() -> None:
    text = legend(statuses(10, running=2), slices_per_cell=20).plain
    assert "C completed" in text
    assert "R running" in text
    assert "failed" not in text
    assert "a cell is 20 slices" in text
    assert "a cell" not in legend(statuses(10), slices_per_cell=1).plain


TAIL = tuple(f"line {number} " + "x" * 300 for number in range(8))
FAILURE = Failure(
    line="preprocess slice 77 failed (sacct: OUT_OF_MEMORY): " + "no memory " * 30,
    log=Path("/runs/r/logs/preprocess/s00077.a0001.rank-00000.log"),
    tail=TAIL,
)


def shown(
    found: RunView, width: int = 120, height: int = 40, *, is_over: bool = False
) -> list[str]:
    """The lines that the view puts on a terminal of that size, colours left out."""
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(live_view(found, console, now_unix_s=NOW_S, is_over=is_over))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


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


def test_age_source_and_expected_start_are_shown() -> None:
    view = seen(
        stage("train", ["waiting"], reason="Priority", start_unix_s=NOW_S + 7500),
        status="waiting",
    )
    text = " ".join(" ".join(shown(view, 160)).split())
    assert "(asked 4 s ago)" in text
    assert "squeue, 4 s ago" in text
    assert "Priority; expected to start" in text
    assert "(in 2 h 05 min)" in text


def test_an_expected_start_that_has_passed_is_not_shown() -> None:
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
