"""Which attention a run uses and why, and the check of the first batch."""

from __future__ import annotations

import dataclasses
import logging
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pipeline.models.attention_kernels import varlen
from pipeline.models.computation.attention_sizes import AttentionSizes
from pipeline.train.attention import kernel_selection
from pipeline.train.attention.attention_choice import AttentionFacts, choose_attention
from pipeline.train.attention.kernel_selection import (
    AttentionFound,
    AttentionUse,
    attention_note,
    attention_warning,
    find_kernels,
    lengths_are_fixed,
)
from pipeline.train.attention.varlen_check import tolerance
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.conftest import open_kind
from tests.pipeline.train.strategies.trainer import Alone, Trainer

CPU = torch.device("cpu")
V100 = "Tesla V100-SXM2-16GB (compute capability 7.0)"
USE = AttentionUse(
    tower="language",
    sizes=AttentionSizes(num_heads=16, num_kv_heads=2, head_dim=128),
    dtype=torch.float16,
    is_causal=True,
    has_mask=False,
)


def test_what_is_chosen_on_a_cpu_is_pytorchs_own_choice():
    use = dataclasses.replace(USE, dtype=torch.float32)
    assert find_kernels(use, CPU, "sdpa").kernel == "flash"
    with sdpa_kernel(SDPBackend.MATH):
        assert find_kernels(use, CPU, "sdpa").kernel == "math"


def choice_of_a_v100(call: dict) -> str:
    """As aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch 2.13 chooses for sm_70."""
    return "math" if call["enable_gqa"] else "efficient"


def test_keys_are_repeated_where_that_alone_keeps_scores_out_of_memory(monkeypatch):
    monkeypatch.setattr(kernel_selection, "_choice", choice_of_a_v100)
    here = find_kernels(USE, CPU, "sdpa")
    assert (here.kernel, here.repeats_keys) == ("efficient", True)
    assert attention_note(here) == (
        "language efficient (with shared keys repeated for each head, which this card needs)"
    )
    assert attention_warning(here, where=V100, max_tokens=4096) is None
    masked = find_kernels(dataclasses.replace(USE, has_mask=True), CPU, "sdpa")
    assert (masked.kernel, masked.repeats_keys) == ("efficient", False)


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_keys_stay_shared_where_that_does_as_well(kernel, monkeypatch):
    monkeypatch.setattr(kernel_selection, "_choice", lambda _call: kernel)
    assert not find_kernels(USE, CPU, "sdpa").repeats_keys


def test_a_model_that_does_not_ask_pytorch_is_reported_as_such():
    found = find_kernels(USE, CPU, "eager")
    assert attention_note(found) == "language eager"
    warning = attention_warning(found, where=V100, max_tokens=1000)
    assert "set `model: {attention: sdpa}`" in warning


def found(kernel: str, otherwise: str, **changes) -> AttentionFound:
    use = dataclasses.replace(USE, **changes)
    return AttentionFound(use=use, kernel=kernel, kernel_otherwise=otherwise)


@pytest.mark.parametrize(
    ("attention", "max_tokens", "warning"),
    [
        *((found(kernel, kernel), 4096, None) for kernel in ("flash", "cudnn", "efficient")),
        (
            found("math", "efficient"),
            4096,
            (
                f"attention of the language model runs the math kernel on {V100} in torch.float16, "
                "which stores every score: a row of 4096 tokens takes 1.07 GB in each layer; "
                "packed rows run efficient: `batching: {kind: packed}`"
            ),
        ),
        (
            found("math", "flash", has_mask=True),
            None,
            "without a mask run flash: `batching: {kind: grouped}`",
        ),
        (found("math", "math"), None, "use fewer tokens per row, or more microbatches"),
    ],
)
def test_scores_that_are_held_are_counted_and_rows_that_need_not_are_named(
    attention, max_tokens, warning
):
    said = attention_warning(attention, where=V100, max_tokens=max_tokens)
    assert said is None if warning is None else said.endswith(warning)


def test_a_mask_that_leaves_flash_out_is_reported():
    assert attention_note(found("efficient", "flash", has_mask=True)) == (
        "language efficient (packed rows have a dense mask; flash without)"
    )
    assert attention_note(found("flash", "efficient")) == "language flash"


A100 = AttentionFacts(
    device_type="cuda",
    capability=(8, 0),
    precision="bf16",
    implementation="sdpa",
    text_type="qwen2_5_vl_text",
    takes_borders=True,
    head_sizes=(80, 128),
    dropout=0.0,
    packs=True,
    sizes_differ=True,
    why_no_varlen="",
)
ON_CPU = {"device_type": "cpu", "capability": None, "precision": "fp32"}


@pytest.mark.parametrize(
    ("changes", "packed", "reason"),
    [
        ({}, "varlen", "compute capability 8.0, bf16"),
        ({"capability": (9, 0), "precision": "fp16"}, "varlen", "compute capability 9.0, fp16"),
        ({"packs": False}, "varlen", "compute capability 8.0, bf16"),
        ({"sizes_differ": False}, "varlen", "compute capability 8.0, bf16"),
        (
            {"packs": False, "sizes_differ": False},
            "dense",
            "no row has several samples, and images are of one size",
        ),
        (
            {"capability": (7, 0), "precision": "fp16"},
            "dense",
            "the GPU has compute capability 7.0, but the kernel needs 8.0 (A100)",
        ),
        (ON_CPU, "dense", "there is no varlen kernel for CPUs"),
        (
            {"precision": "fp32"},
            "dense",
            "precision is fp32, but the kernel needs bf16 or fp16",
        ),
        ({"head_sizes": (80, 256)}, "dense", "heads have 256 numbers, but the kernel supports 192"),
        ({"implementation": "eager"}, "dense", "model.attention is eager"),
        (
            {"takes_borders": False, "text_type": "gemma"},
            "dense",
            "language models of type gemma are not known to accept sample bounds",
        ),
        (
            {"dropout": 0.1},
            "dense",
            "the model has a dropout of 0.1 on scores, which varlen does not support",
        ),
        ({"why_no_varlen": "torch 2.9 has none"}, "dense", "torch 2.9 has none"),
    ],
)
def test_borders_are_taken_where_the_kernel_runs(changes, packed, reason):
    facts = dataclasses.replace(A100, **changes)
    found = choose_attention("auto", facts)
    assert (found.packed, found.reason) == (packed, reason)
    assert choose_attention("dense", facts).packed == "dense"
    if packed == "dense" and changes not in (ON_CPU, {"packs": False, "sizes_differ": False}):
        with pytest.raises(StageConfigError, match=r"^attention is varlen, but "):
            choose_attention("varlen", facts)


def test_cpu_takes_borders_where_the_config_says_so():
    facts = dataclasses.replace(A100, **ON_CPU)
    assert choose_attention("varlen", facts).uses_varlen
    with pytest.raises(StageConfigError, match="set `attention: auto` or `dense`"):
        choose_attention("varlen", dataclasses.replace(facts, implementation="eager"))


@pytest.mark.parametrize(
    ("changes", "kinds", "is_fixed"),
    [
        ({}, {"shuffled"}, True),
        ({}, {"shuffled", "auto"}, False),
        ({}, {"packed"}, False),
        ({"num_tokens": 799}, {"shuffled"}, False),
        ({"num_images": 9}, {"grouped"}, False),
        ({"image_kind": "native"}, {"shuffled"}, False),
    ],
)
def test_lengths_are_fixed_where_all_samples_fill_the_limit(changes, kinds, is_fixed):
    values = {"image_kind": "fixed", "num_samples": 8, "num_images": 8, "num_tokens": 800}
    info = SimpleNamespace(**(values | changes), preprocess={"max_tokens": 100})
    assert lengths_are_fixed([info], kinds) == is_fixed


KIND = "qwen2_5_vl"
PACKED = {"kind": KIND, "strategy": "single", "rows": "packed", "attention": "varlen"}


@pytest.fixture
def trainer(made, tmp_path) -> Trainer:
    return Trainer(kinds={KIND: open_kind(KIND, *made)}, ranks=Alone(), folder=tmp_path)


def reference_that(monkeypatch: pytest.MonkeyPatch, spoil) -> None:
    right = varlen.reference_attention
    monkeypatch.setattr(varlen, "reference_attention", lambda *given: spoil(right, given))


def said_by(trainer, caplog, **changes):
    """What is trained, and the sentence on the ways that were compared, if any."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        trained = trainer.train(**{**PACKED, **changes})
    return trained, [m for m in caplog.messages if "varlen differs from the dense mask by rou" in m]


def test_ways_agree_and_the_check_changes_nothing_that_is_learned(trainer, monkeypatch, caplog):
    dropout = {"adapters": {"rank": 4, "dropout": 0.2}}
    torch.manual_seed(0)
    checked, (said,) = said_by(trainer, caplog, **dropout)
    for what in ("outputs of the vision tower", "outputs of the language", "gradients of the lang"):
        assert what in said
    monkeypatch.setattr("pipeline.train.loop.check_attention", lambda *_, **__: None)
    torch.manual_seed(0)
    assert trainer.train(**PACKED, **dropout)["weights"] == checked["weights"]


def leaking(right, given):
    query, key, value, bounds, *how = given
    return right(query, key, value, bounds[[0, -1]], *how)


def with_half_the_gradients_of_values(right, given):
    query, key, value, *how = given
    half = (value + value.detach()) / 2
    return right(query, key, half, *how)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [(leaking, "outputs"), (with_half_the_gradients_of_values, "gradients")],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernel_that_is_wrong_ends_the_attempt_before_anything_is_learned(
    trainer, monkeypatch, spoil, what, precision
):
    reference_that(monkeypatch, spoil)
    words = (
        rf"{what} of the language model by [0-9.]+ %(?s:.*)Nothing was learned\. Set `attention:"
    )
    with pytest.raises(StageConfigError, match=words):
        trainer.train(**PACKED, precision=precision)


def with_gradients_that_overflow(right, given):
    query, key, value, *how = given
    value.register_hook(lambda gradient: gradient * torch.inf)
    return right(query, key, value, *how)


def test_gradients_that_the_scale_of_fp16_makes_overflow_are_not_compared(
    trainer, monkeypatch, caplog
):
    reference_that(monkeypatch, with_gradients_that_overflow)
    _, (message,) = said_by(trainer, caplog, precision="fp16")
    assert "outputs of the language model" in message
    assert "gradients of the language model" not in message
    with pytest.raises(StageConfigError, match="gradients of the language model by inf %"):
        trainer.train(**PACKED, precision="bf16")


def test_dense_attention_is_not_checked(trainer, monkeypatch, caplog):
    reference_that(monkeypatch, leaking)
    assert said_by(trainer, caplog, attention="auto")[1] == []


def test_tolerance_is_of_rounding_in_the_precision_of_computing():
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    assert [tolerance(dtype, "outputs", 4) for dtype in dtypes] == [1e-3, 2**-4, 2**-7]
    assert tolerance(torch.bfloat16, "gradients", 4) == 2**-3
    deep = tolerance(torch.bfloat16, "gradients", 80)
    assert 0.13 < deep < 0.47  # measured: rounding, and an error
