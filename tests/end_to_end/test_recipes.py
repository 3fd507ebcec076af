"""Each recipe of configs/ from its first stage to its report, with tiny weights.

The weights come by one override (`stages.models.config.source`); the others put CPUs in the place
of GPUs, and less in that of more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.demo import completion, copy_configs
from tests.end_to_end.driver import Driver
from tests.end_to_end.recipe_models import write_recipe_models


@pytest.fixture(scope="module")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of each name that recipes use."""
    return write_recipe_models(tmp_path_factory.mktemp("models"))


def overrides(models: Path, **more: Any) -> list[str]:
    """The weights, CPUs, and what a test may leave out."""
    values = {
        "cluster": "clusters/local.yaml",
        "stages.models.config.source": models,
        "stages.train.resources.gpus_per_node": 0,
        "stages.train.resources.gpu": [],
        "stages.train.resources.mem_gb": 4,
        "stages.train.config.device": "cpu",
        "stages.train.config.batching.max_tokens": 512,
        "stages.preprocess.array.num_slices": 1,
        **more,
    }
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.slow
def test_small_vlm_learns_in_two_phases(local: Driver, tiny_models: Path) -> None:
    copy_configs(local)
    spec = "configs/small-vlm.yaml"
    run_dir = local.submit(spec, *overrides(tiny_models), "--limit", "480")
    assert local.wait(run_dir)["status"] == "completed"
    result = completion(run_dir, "train")["result"]
    assert [phase["name"] for phase in result["phases"]] == ["projector", "lora"]
    assert result["phases"][0]["num_learning"] < result["phases"][1]["num_learning"]
    assert result["strategy"] == "fsdp2"
    assert result["evaluation"]["num_samples"] == 96
    assert result["held_out"]["num_looks"] == 2
    config = json.loads((run_dir / "data/train/model/config.json").read_text())
    assert config["model_type"] == "small_vlm"


@pytest.mark.slow
def test_qlora_trains_adapters_of_4_bit_weights(local: Driver, tiny_models: Path) -> None:
    """In fp16 with a scaled loss, as on V100s; paged state needs a GPU, and is left out."""
    copy_configs(local)
    run_dir = local.submit(
        "configs/qlora-qwen-vl.yaml",
        *overrides(
            tiny_models / "qlora",
            **{
                "stages.train.config.precision": "fp16",
                "stages.train.config.optimizer.kind": "adamw",
                "stages.chats.config.num_train": 96,
                "stages.chats.config.num_heldout": 8,
            },
        ),
    )
    assert local.wait(run_dir)["status"] == "completed"
    result = completion(run_dir, "train")["result"]
    assert (result["strategy"], result["precision"]) == ("fsdp2", "fp16")
    assert "torch.uint8" in result["spread"]["dtypes"]
    assert result["num_learning"] < result["num_parameters"] / 4
    (checkpoint,) = (run_dir / "data/train/checkpoints").glob("step-*")
    assert not any(b"embed_tokens" in path.read_bytes() for path in checkpoint.iterdir())
    assert (run_dir / "data/train/adapters/adapter_model.safetensors").exists()
    assert (run_dir / "data/train/model/model.safetensors").exists()


@pytest.mark.slow
def test_four_chains_of_thought_run_from_one_spec(local: Driver, tiny_models: Path) -> None:
    copy_configs(local)
    spec = "configs/chain-of-thought.yaml"
    run_dir = local.submit(
        spec,
        *overrides(
            tiny_models,
            **{"stages.chats.config.num_train": 64, "stages.chats.config.num_heldout": 8},
        ),
    )
    assert local.wait(run_dir, timeout_s=600)["status"] == "completed"
    for task in ("colour-shape", "shape-colour", "size-colour", "shape-size"):
        result = completion(run_dir, f"train-{task}")["result"]
        assert set(result["evaluation"]["levels"]) == {"first", "second", "description"}
        folder = run_dir / f"data/train-{task}"
        assert (folder / "adapters/adapter_config.json").exists()
        levels = json.loads((folder / "model/levels.json").read_text())
        assert len(levels) == 3
