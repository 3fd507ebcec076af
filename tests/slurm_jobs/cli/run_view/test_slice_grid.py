"""Progress of an array as a grid of cells: no slice and no failure is lost in it."""

import pytest

from slurm_jobs.cli.run_view.slice_grid import LETTERS, grid_lines, legend, make_grid
from slurm_jobs.status.slice_status import Status


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
