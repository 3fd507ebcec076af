"""QLoRA through the whole stage: what is saved, exported, gone on from, and refused."""

from __future__ import annotations

import shutil

import pytest

from tests.pipeline.models.tiny import write_dataset, write_tiny

LORA = {"rank": 4, "alpha": 8.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized")
    return write_dataset("qwen2_5_vl", folder), write_tiny("qwen2_5_vl", folder / "model")


def config_of(made, **changes):
    dataset_dir, model_dir = made
    return {
        "dataset": str(dataset_dir),
        "model": {"type": "hugging_face", "path": str(model_dir)},
        "adapters": LORA,
        "quantize": {},
        "num_steps": 4,
        "global_batch_size": 4,
        "num_lanes": 2,
        "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.1},
        "schedule": {"kind": "constant"},
        "checkpoint": {"every_steps": 2, "every_min": None, "keep_last": 4},
        **changes,
    }


@pytest.mark.parametrize(
    ("strategy", "precision"),
    [("single", "fp32"), ("single", "fp16"), ("fsdp2", "fp16"), ("fsdp2", "fp32")],
)
def test_goes_on_from_a_checkpoint_bit_for_bit(made, make_train_run, strategy, precision):
    run = make_train_run(**config_of(made))
    options = {"strategy": strategy, "precision": precision}
    run.run_here(**options)
    before = run.weights()
    for name in ("checkpoints/step-00000004", "model", "adapters"):
        shutil.rmtree(run.output_dir / name)
    assert run.run_here(**options)["resumed_from_step"] == 2
    assert run.weights() == before


def test_two_ranks_learn_and_say_what_they_see(made, make_train_run):
    source = made[0].parents[1] / "source" / "rows.jsonl"
    run = make_train_run(
        **config_of(
            made,
            num_steps=80,
            adapters={"rank": 16, "alpha": 32.0},
            learn=["adapters", "projector"],
            precision="fp16",
            sharding={"unit_min_params": 0},
            checkpoint={"every_min": None},
            evaluate={"manifest": str(source), "max_new_tokens": 20},
        )
    )
    result = run.run()
    assert result["exact_match"] == 1.0
