"""QLoRA through the whole stage: what is saved, exported, gone on from, and refused."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from pipeline.models.layouts.tower_arguments import plain_arguments
from pipeline.train.training_data.batches import to_device
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.conftest import open_kind
from tests.pipeline.models.passes import CPU
from tests.pipeline.train.strategies import reference_qlora
from tests.pipeline.train.tiny_runs import DECAYING, LORA, SAVED, rows_of, tiny_config

EQUAL = 1e-4
"""Logits that differ by less are the same model's."""
FAR = 100 * EQUAL
"""Those of another differ by more: by 0.07 on an AMD EPYC, over 0.1 on an Intel Xeon."""


def config_of(made, **changes):
    values = {**SAVED, "adapters": LORA, "quantize": {}, "optimizer": DECAYING}
    return tiny_config(made, **{**values, **changes})


@pytest.mark.parametrize(
    ("strategy", "precision"),
    [("single", "fp32"), ("fsdp2", "fp16")],
)
def test_goes_on_from_a_checkpoint_bit_for_bit(made, make_train_run, strategy, precision):
    make_train_run(**config_of(made)).check_resume(strategy=strategy, precision=precision)


def test_sharded_in_fp16_it_learns_and_says_what_it_sees(made, make_train_run):
    run = make_train_run(
        **config_of(
            made,
            num_steps=50,
            adapters={"rank": 16, "alpha": 32.0},
            learn=["adapters", "projector"],
            precision="fp16",
            sharding={"unit_min_params": 0},
            checkpoint={"every_min": None},
            evaluate={"manifest": rows_of(made), "max_new_tokens": 20},
        )
    )
    result = run.run_here(strategy="fsdp2")
    assert result["exact_match"] == 1.0


@pytest.fixture(scope="module")
def trained(made, make_train_run):
    """One that has learned in fp16 and sharded, and what it gave back."""
    run = make_train_run(**config_of(made, num_steps=8))
    result = run.run_here(strategy="fsdp2", precision="fp16", sharding={"unit_min_params": 0})
    return run, result


def logits(model, made):
    """Of a picture and a question, fp32; in training mode, in which nothing is packed anew."""
    kind = open_kind("qwen2_5_vl", *made)
    ours = kind.build()
    batch = kind.batch(ours, [[sample] for sample in kind.samples()])
    inputs = to_device(batch, CPU, ours.layout)
    with torch.no_grad():
        found = model.train()(
            input_ids=inputs.input_ids,
            position_ids=inputs.position_ids,
            use_cache=False,
            **plain_arguments(inputs.vision, CPU.device),
        )
    return found.logits


def test_peft_with_the_adapters_on_a_quantised_base_equals_the_export(made, trained):
    run, _ = trained

    def quantized():
        return reference_qlora.load(str(made[1]), torch.float32)

    original, export = (
        AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        for folder in (made[1], run.output_dir / "model")
    )
    ours = logits(export, made)
    theirs = logits(PeftModel.from_pretrained(quantized(), run.output_dir / "adapters"), made)
    torch.testing.assert_close(ours, theirs, rtol=EQUAL, atol=EQUAL)
    # Neither the base alone nor the same adapters beside the original weights do.
    assert (logits(quantized(), made) - ours).abs().max() > FAR
    beside = logits(PeftModel.from_pretrained(original, run.output_dir / "adapters"), made)
    assert (beside - ours).abs().max() > FAR


def test_checkpoints_have_adapters_alone_and_the_export_is_whole_and_fp32(made, trained):
    run, result = trained
    base, model = (
        load_file(folder / "model.safetensors") for folder in (made[1], run.output_dir / "model")
    )
    assert {name: (t.shape, t.dtype) for name, t in model.items()} == {
        name: (t.shape, t.dtype) for name, t in base.items()
    }
    changed = {name for name in base if not torch.equal(base[name], model[name])}
    assert len(changed) == 14
    assert all("layers" in name and "visual" not in name for name in changed)
    stored = dcp.FileSystemReader(run.checkpoint(8)).read_metadata()
    names = [n for n in stored.state_dict_metadata if n.startswith("model.") and "lora" not in n]
    assert names == []
    num_learning = sum(
        value.numel()
        for value in load_file(run.output_dir / "adapters/adapter_model.safetensors").values()
    )
    assert result["num_learning"] == num_learning
    assert result["num_parameters"] == num_learning + sum(value.numel() for value in base.values())


@pytest.mark.slow
def test_another_base_or_quantisation_is_not_gone_on_from(made, make_train_run):
    run = make_train_run(**config_of(made))
    run.run_here()
    with pytest.raises(StageConfigError, match=r"quantize.double: True then, False now"):
        run.run_here(quantize={"double": False})


def test_phases_train_projector_and_adapters_of_a_quantised_base(made, make_train_run):
    phases = [
        {"name": "projector", "learn": ["projector"], "num_steps": 2},
        {"name": "lora", "learn": ["adapters"], "num_steps": 2},
    ]
    run = make_train_run(**config_of(made, phases=phases, num_steps=None))
    result = run.run_here(strategy="fsdp2")
    base, model = (
        load_file(folder / "model.safetensors") for folder in (made[1], run.output_dir / "model")
    )
    changed = {name.split(".")[0] for name in base if not torch.equal(base[name], model[name])}
    assert changed == {"visual", "model"}
    assert [phase["num_learning"] > 0 for phase in result["phases"]] == [True, True]


@pytest.mark.slow
def test_of_a_folder_in_bf16_the_export_is_fp32_and_says_so(made, make_train_run, tmp_path):
    halved = AutoModelForImageTextToText.from_pretrained(made[1], dtype=torch.bfloat16)
    halved.save_pretrained(tmp_path)
    model = {"type": "hugging_face", "path": str(tmp_path)}
    run = make_train_run(**config_of(made, model=model, num_steps=2))
    run.run_here(strategy="fsdp2", precision="fp16")
    export = run.output_dir / "model"
    assert {t.dtype for t in load_file(export / "model.safetensors").values()} == {torch.float32}
    assert AutoModelForImageTextToText.from_pretrained(export).dtype == torch.float32
