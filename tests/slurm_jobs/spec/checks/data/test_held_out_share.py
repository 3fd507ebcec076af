"""A share that probably holds out no row is found by `check`, not by `consolidate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check


def _spec(folder: Path, share: float, num_rows: int, num_pictures: int = 1) -> str:
    write_processor(folder)
    names = [f"{number}.png" for number in range(num_pictures)]
    for name in names:
        (folder / name).write_bytes(b"GIF89a")
    asked = [{"type": "image", "image": name} for name in names]
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": "words"}]
    (folder / "m.jsonl").write_text(f"{json.dumps({'messages': turns})}\n" * num_rows)
    return SPEC.format(name="m.jsonl") + f"      held_out: {{share: {share}}}\n"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((0.02, 40, 1), "0.02 of 40 rows holds out 0.8 rows on average, so probably none. Raise"),
        ((0.1, 90, 2), "0.9 rows on average, so probably none; a row with several pictures is"),
    ],
)
def test_share_that_probably_holds_out_nothing_is_refused(
    check: Check, tmp_path: Path, rows: tuple[float, int, int], words: str
) -> None:
    text = _spec(tmp_path, *rows)
    (line,) = check(text)
    assert "stages.p.config.held_out.share: " in line
    assert words in line
    assert check(f"{text}limit: 5\n") == []


def test_share_that_holds_out_some_rows_is_accepted(check: Check, tmp_path: Path) -> None:
    assert check(_spec(tmp_path, 0.02, 100)) == []


@pytest.mark.parametrize("share", ["0", "1", "-0.1", "many"])
def test_share_is_between_0_and_1(check: Check, tmp_path: Path, share: str) -> None:
    text = _spec(tmp_path, 0.5, 10).replace("share: 0.5", f"share: {share}")
    (line,) = check(text)
    assert "stages.p.config.held_out.share: " in line
