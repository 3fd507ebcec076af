"""Results whose numbers are not finite, in completion records."""

import math
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker.finite_result import not_finite_note
from slurm_jobs.worker.launch import RanksEnd
from slurm_jobs.worker.supervisor import SliceTask
from tests.slurm_jobs.worker.orders import environment, order


def test_numbers_that_are_not_finite_are_recorded_as_texts_with_a_note(tmp_path: Path) -> None:
    result = {"loss": math.nan, "all": [math.inf, -math.inf], "count": 3, "label": "NaN"}
    task = SliceTask(
        order=order(tmp_path),
        paths=RunPaths(tmp_path),
        environment=environment("n1"),
        slice_index=0,
        base_attempt=0,
    )
    record = task.record_end(task.claim(), RanksEnd(outcome="completed"), result)
    texts = {"loss": "NaN", "all": ["Infinity", "-Infinity"], "count": 3, "label": "NaN"}
    assert record.result == texts
    assert record.result_note == "no finite number in its result for `loss`, `all`"


@pytest.mark.parametrize(
    ("result", "note"),
    [
        ({"label": "NaN", "loss": 0.5, "texts": ["Infinity"]}, ""),
        ({"best": {"loss": math.nan, "step": 3}}, "for `best.loss`"),
        ({"per_class": [{"ap": math.nan}, {"ap": 1.0}, {"ap": math.inf}]}, "for `per_class.ap`"),
        (dict.fromkeys("abcdefg", math.nan), "for `a`, `b`, `c`, `d`, `e` and 2 more"),
    ],
)
def test_a_note_names_only_numbers_and_each_name_once(result: dict[str, Any], note: str) -> None:
    assert not_finite_note(result) == (f"no finite number in its result {note}" if note else None)
