"""What `packing` prints: cells of a row, its shades, and what the remarks say."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from slurm_jobs.cli.data_sets.packing_view import print_view, remarks, row_cells, row_text


@pytest.mark.parametrize(
    ("lengths", "padded", "cells"),
    [
        ([50, 25], 100, [0, 0, 1, -1]),
        ([25, 25, 25, 25], 100, [0, 1, 2, 3]),
        ([30], 60, [0, -1, -2, -2]),
        ([100], 100, [0, 0, 0, 0]),
        ([1, 98, 1], 100, [1, 1, 1, 1]),
    ],
)
def test_a_cell_shows_the_content_at_its_middle(
    lengths: list[int], padded: int, cells: list[int]
) -> None:
    assert row_cells(lengths, padded, 100, 4) == cells


def test_neighbours_differ_in_shade_also_where_one_between_is_not_seen() -> None:
    assert row_text([25, 25, 25], 100, 100, 4).plain == "█▒█·"
    assert row_text([50, 1, 49], 100, 100, 4).plain == "██▒▒"
    assert row_text([30], 60, 100, 4).plain == "█·"


def way(name: str, **values: Any) -> dict[str, Any]:
    return {
        "name": name,
        "batching": f"{{kind: {name}}}",
        "is_configured": False,
        "problem": None,
        "num_rows": 1_234_567,
        "samples_per_row": 104.2,
        "padding_share": 0.5,
        "slowest_over_mean": 1.25,
        "rows": [{"lengths": [50, 50], "padded": 100}],
        **values,
    }


def timed(name: str, tokens_per_s: float, median: float, **values: Any) -> dict[str, Any]:
    seconds = 1000 / tokens_per_s
    numbers = {
        "tokens_per_s": tokens_per_s,
        "fastest_over_median": tokens_per_s / median,
        "timed_as": None,
    }
    return way(name, **numbers, step_s=0.125, s_per_1000_samples=seconds, **values)


def view(*ways: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {
        "folder": "/data/set",
        "num_samples": 2_000_000,
        "num_looked_at": 2_000_000,
        "max_tokens": 100,
        "max_images": None,
        "global_batch_size": 64,
        "num_ranks": 8,
        "device": None,
        "notes": [],
        "refused": None,
        "ways": list(ways),
        **values,
    }


def printed(values: dict[str, Any], **options: Any) -> str:
    stream = io.StringIO()
    print_view(values, Console(file=stream, width=80, **options), num_rows=4)
    return stream.getvalue()


def test_the_widest_numbers_fit_80_columns() -> None:
    wide = timed("constrained", 1_234_567.0, 1.0, is_configured=True)
    out = printed(view(wide, device="CPU"))
    assert max(map(len, out.splitlines())) <= 80
    (line,) = (line for line in out.splitlines() if line.startswith("constrained *"))
    assert line.split()[2:] == [
        "1,234,567", "104.2", "50.00", "1.250", "0.125", "1,234,567", "0.000810"
    ]  # fmt: skip


def test_colours_come_only_where_a_terminal_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    options: dict[str, Any] = {"force_terminal": True, "color_system": "standard"}
    assert "\x1b[34m█" in printed(view(way("exact")), **options)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[34m" not in printed(view(way("exact")), **options)


def test_a_way_that_cannot_be_has_dashes_and_its_reason() -> None:
    wrong = {**way("greedy"), "problem": "sizes do not divide", "rows": []}
    out = printed(view(way("exact"), wrong))
    (line,) = (line for line in out.splitlines() if line.startswith("greedy   "))
    assert line.split() == ["greedy", "-", "-", "-", "-"]
    assert "greedy: sizes do not divide" in out


def test_the_fastest_is_named_with_those_that_may_be_as_fast() -> None:
    ways = [timed("a", 100, 80), timed("b", 90, 85), timed("c", 70, 60)]
    *_, last = remarks(view(*ways, device="CPU"))
    assert (
        last == "fastest here: a (`batching: {kind: a}`), not distinguishable by these steps from b"
    )


def test_a_part_of_a_large_set_and_shared_measurements_are_reported() -> None:
    shared = timed("bfd", 10, 10) | {"timed_as": "ffd"}
    told = list(remarks(view(timed("ffd", 10, 10), shared, num_looked_at=262_144, device="CPU")))
    assert told[0] == "of the first 262,144 samples in the training's random order"
    assert "same batches, timed once: bfd as ffd" in told
