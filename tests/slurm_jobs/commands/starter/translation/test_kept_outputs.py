"""Checkpoints and trackers of another tool's training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import translated, written

LLAMA = "model_name_or_path: a/b\n"
AXOLOTL = "base_model: a/b\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (LLAMA + "save_steps: 500\n", {"checkpoint.every_steps": 500}),
        (LLAMA + "save_steps: 0.1\n", {"checkpoint.every_steps": None}),
        (LLAMA + "save_total_limit: 3\n", {"checkpoint.keep_last": 3}),
        (LLAMA + "save_total_limit: -1\n", {"checkpoint.keep_last": None}),
        (LLAMA + "logging_steps: 10\n", {"log_every_steps": 10}),
        (LLAMA + "report_to: none\n", {"trackers.use": None}),
        (LLAMA + "report_to: wandb,tensorboard\n", {"trackers.use": ["wandb", "tensorboard"]}),
        (LLAMA + "report_to: [all]\n", {"trackers.use": None}),
        (
            AXOLOTL + "wandb_project: p\nwandb_entity: e\nwandb_name: n\n",
            {
                "trackers.use": ["wandb"],
                "trackers.project": "p",
                "trackers.options": {"wandb": {"entity": "e", "name": "n"}},
            },
        ),
        (AXOLOTL + "wandb_project:\nwandb_entity:\n", {"trackers.use": None}),
        (AXOLOTL + "use_tensorboard: true\nuse_mlflow: false\n", {"trackers.use": ["tensorboard"]}),
    ],
)
def test_settings_mean_the_same(tmp_path: Path, text: str, values: dict[str, Any]) -> None:
    config = written(translated(tmp_path / "a.yaml", text))
    assert {key: config.get(key) for key in values} == values
