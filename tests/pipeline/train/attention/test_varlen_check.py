"""The check of the first batch: a varlen kernel computes what the reference does."""

from __future__ import annotations

import logging

import pytest
import torch

from pipeline.models.attention_kernels import varlen
from pipeline.train.attention.varlen_check import tolerance
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.conftest import open_kind
from tests.pipeline.train.strategies.trainer import Alone, Trainer

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
    if value.requires_grad:
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
