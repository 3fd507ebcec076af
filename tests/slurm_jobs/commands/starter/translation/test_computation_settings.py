"""Precision, memory and sharding of another tool's training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import translated, written

LLAMA = "model_name_or_path: a/b\n"
AXOLOTL = "base_model: a/b\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (LLAMA + "bf16: true\n", {"precision": None}),
        (LLAMA + "fp16: true\n", {"precision": "fp16"}),
        (AXOLOTL + "bf16: auto\nfp16:\n", {"precision": None}),
        (AXOLOTL + "tf32: true\n", {"tf32": True}),
        (AXOLOTL + "tf32: auto\n", {"tf32": None}),
        (LLAMA, {"activation_checkpointing": True}),
        (LLAMA + "disable_gradient_checkpointing: true\n", {"activation_checkpointing": False}),
        (AXOLOTL, {"activation_checkpointing": False}),
        (AXOLOTL + "gradient_checkpointing: offload\n", {"activation_checkpointing": True}),
        (LLAMA + "deepspeed: examples/ds_z3_config.json\n", {"strategy": None}),
        (LLAMA + "deepspeed: ds_z0_config.json\n", {"strategy": "ddp"}),
        (LLAMA + "deepspeed: ds_z3_offload_config.json\n", {"sharding.cpu_offload": True}),
        (
            AXOLOTL + "fsdp_config: {offload_params: true, reshard_after_forward: false}\n",
            {"sharding.cpu_offload": True, "sharding.reshard_after_forward": False},
        ),
        (AXOLOTL + "torch_compile: true\n", {"compile": {}}),
    ],
)
def test_settings_mean_the_same(tmp_path: Path, text: str, values: dict[str, Any]) -> None:
    config = written(translated(tmp_path / "a.yaml", text))
    assert {key: config.get(key) for key in values} == values


def test_a_file_of_deepspeed_decides_rather_than_its_name(tmp_path: Path) -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    (tmp_path / "z0.json").write_text(json.dumps({"zero_optimization": zero}))
    config = written(translated(tmp_path / "a.yaml", LLAMA + "deepspeed: z0.json\n"))
    assert (config.get("strategy"), config["sharding.cpu_offload"]) == (None, True)


def test_one_rank_shards_nothing(tmp_path: Path) -> None:
    text = AXOLOTL + "deepspeed: zero3_offload.json\nfsdp_config: {reshard_after_forward: true}\n"
    config = written(translated(tmp_path / "a.yaml", text, num_gpus=1))
    assert not [key for key in config if key.startswith(("sharding", "strategy"))]
