"""The first batch is computed both ways; a kernel that is wrong ends the attempt."""

from __future__ import annotations

import logging

import pytest
import torch

from pipeline.models import segments
from pipeline.train.attention import tolerance
from slurm_jobs.shared.errors import StageConfigError
from tests.pipeline.models.conftest import Kind, open_kind
from tests.pipeline.models.tiny import write_dataset, write_tiny
from tests.pipeline.train.strategies.trainer import Alone, Trainer

KIND = "qwen2_5_vl"
PACKED = {"kind": KIND, "strategy": "single", "rows": "packed", "attention": "varlen"}


@pytest.fixture(scope="module")
def kind(tmp_path_factory: pytest.TempPathFactory) -> Kind:
    folder = tmp_path_factory.mktemp(KIND)
    return open_kind(KIND, write_dataset(KIND, folder), write_tiny(KIND, folder / "model"))


@pytest.fixture
def trainer(kind: Kind, tmp_path) -> Trainer:
    return Trainer(kinds={KIND: kind}, ranks=Alone(), folder=tmp_path)


def reference_that(monkeypatch: pytest.MonkeyPatch, spoil) -> None:
    right = segments.reference_attention
    monkeypatch.setattr(segments, "reference_attention", lambda *given: spoil(right, given))


def test_ways_agree_and_the_check_changes_nothing_that_is_learned(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dropout = {"adapters": {"rank": 4, "dropout": 0.2}}
    torch.manual_seed(0)
    with caplog.at_level(logging.INFO):
        checked = trainer.train(**PACKED, **dropout)
    (said,) = [m for m in caplog.messages if "varlen differs from the dense mask by round" in m]
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
    [
        (leaking, r"outputs of the language model by [0-9.]+ %"),
        (with_half_the_gradients_of_values, r"gradients of the language model by [0-9.]+ %"),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernel_that_is_wrong_ends_the_attempt_before_anything_is_learned(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, spoil, what: str, precision: str
) -> None:
    reference_that(monkeypatch, spoil)
    with pytest.raises(StageConfigError, match=what) as raised:
        trainer.train(**PACKED, precision=precision)
    assert "Nothing was learned. Set `attention: dense`" in str(raised.value)


def with_gradients_that_overflow(right, given):
    query, key, value, *how = given
    value.register_hook(lambda gradient: gradient * torch.inf)
    return right(query, key, value, *how)


def test_gradients_that_the_scale_of_fp16_makes_overflow_are_not_compared(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reference_that(monkeypatch, with_gradients_that_overflow)
    with caplog.at_level(logging.INFO):
        trainer.train(**PACKED, precision="fp16")
    (message,) = [m for m in caplog.messages if "varlen differs from the dense mask by round" in m]
    assert "outputs of the language model" in message
    assert "gradients of the language model" not in message
    with pytest.raises(StageConfigError, match="gradients of the language model by inf %"):
        trainer.train(**PACKED, precision="bf16")


def test_dense_attention_is_not_checked(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reference_that(monkeypatch, leaking)
    with caplog.at_level(logging.INFO):
        trainer.train(**{**PACKED, "attention": "auto"})
    assert "varlen" not in caplog.text


def test_tolerance_is_of_rounding_in_the_precision_of_computing() -> None:
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    assert [tolerance(dtype, "outputs", 4) for dtype in dtypes] == [1e-3, 2**-4, 2**-7]
    assert tolerance(torch.bfloat16, "gradients", 4) == 2**-3
    deep = tolerance(torch.bfloat16, "gradients", 80)
    assert 0.13 < deep < 0.47  # measured: rounding, and an error
