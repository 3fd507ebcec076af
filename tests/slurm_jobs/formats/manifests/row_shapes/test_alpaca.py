"""Alpaca's rows become a question of two parts and its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.messages import RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row
from tests.slurm_jobs.formats.manifests.builders import row_of, spoken

ADD = {"instruction": "Add the numbers.", "input": "2 and 3", "output": "5"}
JOINED = "Add the numbers.\n2 and 3"


@pytest.mark.parametrize(
    ("others", "question"),
    [
        ({}, JOINED),
        ({"input": ""}, "Add the numbers."),
        ({"input": None}, "Add the numbers."),
        ({"input": " "}, "Add the numbers."),
        ({"instruction": ""}, "2 and 3"),
        ({"instruction": None}, "2 and 3"),
        ({"output": None, "response": "5"}, JOINED),
        ({"history": []}, JOINED),
    ],
    ids=repr,
)
def test_instruction_and_input_are_joined_by_a_line_break(
    others: dict[str, Any], question: str
) -> None:
    row = row_of({**ADD, **others})
    assert (row.problem, row.ignored) == ("", ())
    assert spoken(row) == [("user", question), ("assistant", "5")]


def test_names_are_compared_without_case() -> None:
    row = row_of({key.title(): text for key, text in ADD.items()})
    assert spoken(row)[0] == ("user", JOINED)


def test_pictures_and_system_message_are_read_as_in_other_rows() -> None:
    row = row_of(
        {**ADD, "instruction": "<image>\nAdd them.", "images": ["a.png"], "system": "Be brief."}
    )
    assert spoken(row)[0] == ("system", "Be brief.")
    assert [item.value for item in row.messages[1].content] == ["a.png", "Add them.\n2 and 3"]


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"input": 3}, "`input` is a number, expected a string"),
        ({"input": ["2", "3"]}, "`input` is a list, expected a string"),
        ({"instruction": 7}, "`instruction` is a number, expected a string"),
        ({"input": "sum.png"}, "`input` holds words of the user, which are not read"),
        ({"question": "What?"}, "`instruction` and `question` differ"),
        ({"choices": ["4", "5"]}, "`choices` holds choices of the question"),
        ({"chosen": "5", "rejected": "6"}, "`chosen` holds preference data"),
        ({"kto_tag": True}, "`kto_tag` holds preference data"),
        ({"tools": "[{}]"}, "`tools` holds tools"),
        ({"videos": ["v.mp4"]}, "`videos` holds video"),
        ({"output": None}, "`output` is null, expected a string"),
    ],
    ids=repr,
)
def test_a_row_with_other_content_is_refused(others: dict[str, Any], problem: str) -> None:
    assert problem in row_of({**ADD, **others}).problem


@pytest.mark.parametrize(
    ("columns", "question"),
    [
        (Columns(ignore=("input",)), "Add the numbers."),
        (Columns(prompt="input"), "2 and 3"),
        (Columns(prompt="instruction", text="output"), JOINED),
    ],
)
def test_columns_of_the_config_come_first(columns: Columns, question: str) -> None:
    origin = RowOrigin(row=0, line=1, manifest=Path("m.jsonl"))
    row = read_row(origin, ADD, RowOptions(columns=columns))
    assert spoken(row) == [("user", question), ("assistant", "5")]


def test_an_input_next_to_turns_is_not_joined() -> None:
    turns = [{"role": "user", "content": "Add the numbers."}, {"role": "assistant", "content": "5"}]
    row = row_of({"messages": turns, "instruction": "Add the numbers.", "input": "2 and 3"})
    assert spoken(row) == [("user", "Add the numbers."), ("assistant", "5")]
    assert set(row.ignored) == {"instruction", "input"}
