"""Held-out rows of another tool's training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import (
    row_of,
    translated,
    written,
)

LLAMA = "model_name_or_path: a/b\n"
AXOLOTL = "base_model: a/b\n"
SWIFT = "swift sft --model a/b --dataset x/y "


def test_held_out_rows_are_evaluated_as_often(tmp_path: Path) -> None:
    text = LLAMA + "eval_steps: 50\neval_dataset: held\n"
    translation = translated(tmp_path / "a.yaml", text, evaluation="held.jsonl")
    assert written(translation)["evaluate.every_steps"] == 50
    translation = translated(tmp_path / "a.yaml", text)
    assert "evaluate.every_steps" not in written(translation)
    assert row_of(translation, "eval_steps").fate == "without"


@pytest.mark.parametrize(
    ("file", "text", "num_rows", "share"),
    [
        ("a.yaml", LLAMA + "val_size: 0.1\n", 1000, 0.1),
        ("a.yaml", LLAMA + "val_size: 0.1\n", None, 0.1),
        ("a.yaml", LLAMA + "val_size: 300\n", 1000, 0.3),
        ("a.yaml", LLAMA + "val_size: 0.01\n", 40, 0.025),
        ("a.yaml", AXOLOTL + "val_set_size: 0.05\n", 1000, 0.05),
        ("a.sh", SWIFT + "--split_dataset_ratio 0.01", 1000, 0.01),
    ],
)
def test_a_share_is_held_out(
    tmp_path: Path, file: str, text: str, num_rows: int | None, share: float
) -> None:
    translation = translated(tmp_path / file, text, num_rows=num_rows)
    assert written(translation, "preprocess")["held_out"] == {"share": share}


@pytest.mark.parametrize(
    ("text", "num_rows", "reason"),
    [
        ("val_size: 300\n", None, "to 300 / ROWS"),
        ("val_size: 300\n", 200, "there are only 200 rows"),
        ("val_size: 1\n", 200, "it is no share"),
        ("val_size: 0.1\neval_dataset: held\n", 200, "the file names other rows"),
    ],
)
def test_other_sizes_have_no_counterpart_and_a_reason(
    tmp_path: Path, text: str, num_rows: int | None, reason: str
) -> None:
    translation = translated(tmp_path / "a.yaml", LLAMA + text, num_rows=num_rows)
    assert "held_out" not in written(translation, "preprocess")
    row = row_of(translation, "val_size")
    assert row.fate == "without"
    assert reason in row.text


def test_no_share_is_held_out_besides_rows_that_are_evaluated(tmp_path: Path) -> None:
    text = LLAMA + "val_size: 0.1\n"
    translation = translated(tmp_path / "a.yaml", text, evaluation="held.jsonl")
    assert "held_out" not in written(translation, "preprocess")
    assert "other rows are evaluated" in row_of(translation, "val_size").text
    translation = translated(tmp_path / "b.yaml", AXOLOTL + "val_set_size: 0.0\n")
    assert row_of(translation, "val_set_size").fate == "kept"


def test_held_out_rows_are_evaluated_and_not_counted_as_steps(tmp_path: Path) -> None:
    text = LLAMA + "val_size: 0.2\neval_steps: 5\nwarmup_steps: 2\nnum_train_epochs: 1\n"
    translation = translated(tmp_path / "a.yaml", text, num_gpus=1, num_rows=100)
    assert written(translation)["evaluate.every_steps"] == 5
    assert translation.num_steps == 80 // 8
