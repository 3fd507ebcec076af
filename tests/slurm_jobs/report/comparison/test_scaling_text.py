"""Scaling in the terminal: notes below the headline, and no number that is cut."""

from __future__ import annotations

import pytest

from slurm_jobs.report.comparison.scaling import scale
from slurm_jobs.report.comparison.scaling_text import render_scaling
from tests.slurm_jobs.cli.made_runs import make_runs
from tests.slurm_jobs.cli.narrow_screen import narrow, narrow_output, rows
from tests.slurm_jobs.report.builders import printed
from tests.slurm_jobs.report.comparison.measured import GIGABYTE
from tests.slurm_jobs.report.comparison.scaled_runs import runs

__all__ = ["narrow"]


def shown(given, width=80):
    def show(scaling, console):
        console.print(render_scaling(scaling))

    return printed(scale(given), width, show)


def test_memory_without_readings_is_noted_below_the_headline():
    (series,) = scale(runs({2: 1000, 8: 3900})).series
    assert series.notes == ("memory not judged: no reading shows how much the GPUs had (r2)",)
    assert "note: memory not judged" in shown(runs({2: 1000, 8: 3900}))
    assert scale(runs({2: 1000, 8: 3900}, device="cpu")).series[0].notes == ()
    known = {"memory_capacity_bytes": 16 * GIGABYTE}
    assert scale(runs({2: 1000, 8: 3900}, **known)).series[0].notes == ()


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_is_cut_where_ranks_are_many(width):
    text = shown(runs({num: 1234567 * num**0.9 for num in (8, 128, 1024)}), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.usefixtures("narrow")
def test_scaling_has_a_line_a_number_of_ranks_with_its_bar(tmp_path, capsys) -> None:
    runs = [*make_runs(tmp_path, "two"), *make_runs(tmp_path, "four", num_ranks=4)]
    out = narrow_output(capsys, "scaling", *runs)
    lines = [" ".join(row) for row in rows(out)]
    assert "ranks runs tokens/s times ideal of ideal 95 % interval | is the ideal" in lines
    (four,) = [line for line in lines if line.startswith("4 3 ")]
    assert " to 100 % █" in four
