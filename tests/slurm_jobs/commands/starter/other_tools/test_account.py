"""The account of a translation, on a terminal and as a page."""

from __future__ import annotations

from slurm_jobs.commands.starter.other_tools.account import (
    AccountRow,
    markdown,
    summary,
    table_lines,
    value_text,
)

ROWS = (
    AccountRow(key="odd", value="1", fate="unknown", text="no such key"),
    AccountRow(key="lr", value="0.1", fate="kept", text="`learning_rate: 0.1`"),
    AccountRow(key="wd", value="0.0", fate="default", text="`weight_decay: 0.0`"),
    AccountRow(key="pattern", value="a|b", fate="without", text="no patterns"),
)


def test_defaults_are_no_keys_of_the_file() -> None:
    assert summary(ROWS) == "3 keys: 1 kept, 1 no counterpart, 1 unknown; 1 default of the tool"


def test_lines_are_in_the_order_of_fates_and_aligned() -> None:
    lines = list(table_lines(ROWS))
    assert [line.split()[0] for line in lines] == ["kept", "default", "no", "unknown"]
    assert len({line.index(row.text) for line, row in zip(lines[:1], ROWS[1:2], strict=True)}) == 1
    assert lines[-1].endswith("odd: 1        no such key")


def test_a_page_has_one_row_per_key_and_no_broken_cells() -> None:
    page = markdown(ROWS, file="train.yaml", tool="axolotl", spec="mine.yaml")
    assert page.startswith("# train.yaml of axolotl, and mine.yaml\n")
    assert "| `pattern` | a\\|b | no counterpart | no patterns |" in page
    assert page.count("\n| `") == len(ROWS)


def test_long_values_are_cut_and_steering_characters_shown() -> None:
    assert value_text("x" * 99) == "x" * 37 + "..."
    assert value_text("a\x1b[2J\nb") == "a\\x1b[2J b"
