"""Learning rate, schedule and AdamW's settings of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import (
    row_of,
    translated,
    written,
)

LLAMA = "model_name_or_path: a/b\nper_device_train_batch_size: 1\n"


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        ("learning_rate: 1.0e-5\n", "optimizer.learning_rate", 1e-5),
        ("learning_rate: 1e-4\n", "optimizer.learning_rate", 1e-4),
        ("", "optimizer.learning_rate", 5e-5),
        ("", "optimizer.weight_decay", 0.0),
        ("", "optimizer.beta2", 0.999),
        ("max_grad_norm: 0.5\n", "optimizer.grad_clip_norm", 0.5),
        ("max_grad_norm: 0\n", "optimizer.grad_clip_norm", None),
        ("optim: paged_adamw_8bit\n", "optimizer.kind", "paged_adamw_8bit"),
        ("optim: adamw_bnb_8bit\n", "optimizer.kind", "adamw_8bit"),
        ("lr_scheduler_type: cosine\n", "schedule.kind", "onecycle"),
        ("lr_scheduler_type: cosine_with_min_lr\n", "schedule.kind", "cosine"),
        ("lr_scheduler_type: constant_with_warmup\n", "schedule.kind", "constant"),
        ("", "schedule.kind", "onecycle"),
        ("warmup_ratio: 0.1\n", "schedule.warmup_share", 0.1),
        ("", "schedule.warmup_share", 0.0),
        ("warmup_steps: 0.05\n", "schedule.warmup_share", 0.05),
        ("warmup_steps: 75\n", "schedule.warmup_share", 0.1),  # of 3 epochs of 250 steps
        ("warmup_steps: 20\nmax_steps: 100\n", "schedule.warmup_share", 0.2),
    ],
)
def test_settings_mean_the_same(tmp_path: Path, lines: str, key: str, value: Any) -> None:
    config = written(translated(tmp_path / "a.yaml", LLAMA + lines))
    assert config[key] == value


def test_steps_of_warmup_need_the_number_of_rows(tmp_path: Path) -> None:
    text = LLAMA + "warmup_steps: 75\n"
    translation = translated(tmp_path / "a.yaml", text, num_rows=None)
    assert "schedule.warmup_share" not in written(translation)
    assert row_of(translation, "warmup_steps").fate == "without"


def test_a_schedule_and_an_optimizer_without_counterpart_are_said(tmp_path: Path) -> None:
    text = LLAMA + "lr_scheduler_type: linear\noptim: adafactor\n"
    translation = translated(tmp_path / "a.yaml", text)
    assert "the nearest one that falls to 0" in row_of(translation, "lr_scheduler_type").text
    assert row_of(translation, "optim").fate == "without"
    assert "optimizer.kind" not in written(translation)


def test_the_cosine_of_axolotl_stops_where_its_share_says(tmp_path: Path) -> None:
    text = "base_model: a/b\nlr_scheduler: cosine\ncosine_min_lr_ratio: 0.2\n"
    translation = translated(tmp_path / "a.yaml", text)
    assert written(translation)["schedule.kind"] == "cosine"
    assert "not to 0.2" in row_of(translation, "cosine_min_lr_ratio").text
