"""What learns and what does not: adapters, parts, and checkpoints without the base."""

from __future__ import annotations

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.tiny import write_dataset, write_tiny
from tests.pipeline.train.tiny_runs import DECAYING, LORA, SAVED, rows_of, tiny_config


def config_of(made, **changes):
    return tiny_config(made, **{**SAVED, "optimizer": DECAYING, **changes})


@pytest.fixture(scope="module")
def lora(made, make_train_run):
    run = make_train_run(**config_of(made, adapters=LORA))
    run.run_here()
    return run


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def test_parts_that_are_not_named_stay_as_they_were_bit_for_bit(made, make_train_run):
    run = make_train_run(**config_of(made, learn=["projector"]))
    result = run.run_here()
    before, after = weights_of(made[1]), weights_of(run.output_dir / "model")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("visual.merger.") for name in changed)
    assert result["num_learning"] == sum(before[name].numel() for name in changed)


def test_adapters_alone_are_in_checkpoints_and_are_merged_into_the_export(made, lora):
    size = sum(path.stat().st_size for path in lora.checkpoint(4).iterdir())
    assert size < (made[1] / "model.safetensors").stat().st_size
    base, untouched, ours = (
        AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        for folder in (made[1], made[1], lora.output_dir / "model")
    )
    theirs = PeftModel.from_pretrained(base, lora.output_dir / "adapters").merge_and_unload()
    num_changed = 0
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name])
        num_changed += not torch.equal(value, untouched.state_dict()[name])
    assert num_changed == 14  # seven linear layers in each of two layers


def test_adapters_everywhere_leave_out_unused_layers_of_llava(make_train_run, tmp_path):
    llava = write_dataset("llava", tmp_path), write_tiny("llava", tmp_path / "model")
    run = make_train_run(
        **config_of(llava, num_steps=1, adapters={**LORA, "targets": ["*"]}, learn=["adapters"])
    )
    run.run_here()
    layers = "base_model.model.model.vision_tower.encoder.layers"
    names = list(load_file(run.output_dir / "adapters/adapter_model.safetensors"))
    assert any(name.startswith(f"{layers}.1.") for name in names)
    assert not any(name.startswith(f"{layers}.2.") for name in names)


def test_dropout_draws_the_same_again_and_goes_on_where_it_was(made, make_train_run):
    config = config_of(made, adapters={**LORA, "dropout": 0.5})
    first, again = make_train_run(**config), make_train_run(**config)
    first.run_here()
    torch.manual_seed(17)  # as if another process had begun elsewhere
    again.run_here()
    kept = first.weights()
    assert again.weights() == kept
    again.forget(2)
    again.run_here()
    assert again.weights() == kept


def test_adapters_go_on_from_a_checkpoint_bit_for_bit(lora, make_train_run):
    run = make_train_run(**lora.config).take(lora, forget_after=2)
    assert run.run_here()["resumed_from_step"] == 2
    assert run.weights() == lora.weights()
    make_train_run(**lora.config).check_resume(strategy="fsdp2")


def test_another_base_is_not_gone_on_from(made, lora, make_train_run):
    run = make_train_run(**lora.config).take(lora)
    write_tiny("qwen2_5_vl", made[1], seed=5)  # at the same place
    try:
        with pytest.raises(StageConfigError, match="weights that are not trained: hash"):
            run.run_here()
    finally:
        write_tiny("qwen2_5_vl", made[1])


@pytest.mark.slow
def test_two_ranks_learn_adapters_and_projector_and_say_what_they_see(made, make_train_run):
    run = make_train_run(
        **config_of(
            made,
            num_steps=80,
            adapters={"rank": 16, "alpha": 32.0},
            learn=["adapters", "projector"],
            sharding={"unit_min_params": 0},
            checkpoint={"every_min": None},
            evaluate={"manifest": rows_of(made), "max_new_tokens": 20},
        )
    )
    result = run.run()
    assert result["exact_match"] == 1.0
    settings = json.loads((run.output_dir / "adapters/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(made[1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"learn": ["*.merge"]},
            r"learn: '\*.merge' is not a part .* matches no parameter; similar",
        ),
        ({"adapters": {**LORA, "targets": ["q_proj"]}}, "'q_proj' matches no linear layer"),
    ],
)
def test_what_names_nothing_is_refused_before_the_first_step(made, make_train_run, changes, words):
    run = make_train_run(**config_of(made, **changes))
    with pytest.raises(StageConfigError, match=words):
        run.run_here()
    assert not (run.output_dir / "model").exists()
