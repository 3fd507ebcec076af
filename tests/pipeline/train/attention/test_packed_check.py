"""Packed samples compute as they do alone, or the attempt ends before anything is learned."""

from __future__ import annotations

import itertools
import logging
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.data.batch import Batch
from pipeline.models.build import build_model
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train import loop
from pipeline.train.attention import packed_check
from pipeline.train.attention.packed_check import check_packed_rows
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.single import Single
from pipeline.train.strategies.strategy import ParallelModel
from slurm_jobs.base.errors import PackingLeakError
from slurm_jobs.formats.timings.packed_check import PACKED_CHECK_SPAN, read_packed_check
from tests.pipeline.kinds import EXPERT_KINDS, KINDS
from tests.pipeline.models.conftest import Kind
from tests.pipeline.train.attention.leaks import LEAKS
from tests.pipeline.train.strategies.trainer import Alone, Trainer, Unwritten

PACKED = {"strategy": "single", "rows": "packed"}
ROWS = (((0, 1), (2, 3)), ((3, 2, 1, 0),), ((1, 0, 3), (2,)), ((2, 0), (1, 3, 2)))
"""Numbers of samples, of `tiny.ROWS`, by row."""


def trainer_of(kind: Kind, folder: Path) -> Trainer:
    return Trainer(kinds={kind.name: kind}, ranks=Alone(), folder=folder)


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_leak_between_samples_ends_the_attempt(make_kind, tmp_path, monkeypatch, leak, precision):
    name, plant = LEAKS[leak]
    kind = make_kind("llava_siglip" if name == "small_vlm" else name)
    varlen = {"attention": "varlen"} if "cu_seqlens" in leak else {}
    # It compares another kernel, and would see some of them first.
    monkeypatch.setattr(loop, "check_attention", lambda *_, **__: None)
    trainer = trainer_of(kind, tmp_path)
    config = trainer.config(name, strategy="single", precision=precision, **varlen)
    made = trainer.build_trained_model(name, config)
    plant(monkeypatch, made)
    with pytest.raises(PackingLeakError, match=r"sample \d+ \(number 2 of 2 in its row"):
        trainer.make_steps(made, name, config, rows="packed")


def with_other_weights(model: VisionLanguageModel, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                spread = 0.5 if "embed" in name else 0.5 / weight.shape[-1] ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=draw) * spread)


def start(model: VisionLanguageModel, batch: Batch, kind: Kind, precision: str) -> dict[str, Any]:
    """What the check of a healthy start writes down."""
    rank_device = RankDevice(device=torch.device("cpu"), precision=precision, num_compute_threads=1)
    spans = Unwritten()
    check_packed_rows(
        [batch],
        strategy=Single(rank_device),
        parallel=ParallelModel(
            model=model, bare=model, optimizer=torch.optim.SGD(model.parameters())
        ),
        needs=model.layout.needs,
        data=kind.facts.info,
        rank_device=rank_device,
        ranks=Alone(),
        spans=spans,
    )
    return spans.notes[PACKED_CHECK_SPAN]


def check_healthy_starts(kind: Kind, seeds: range, packings: Any) -> list[dict[str, Any]]:
    model = build_model(kind.config, kind.facts, seed=0).train()
    samples = kind.samples()
    results = []
    for seed in seeds:
        with_other_weights(model, seed)
        for rows, precision in itertools.product(packings, ("fp32", "bf16")):
            length = 7 + max(sum(len(samples[n].input_ids) for n in row) for row in rows)
            batch = kind.batch(model, [[samples[n] for n in row] for row in rows], length)
            results.append(start(model, batch, kind, precision))
    return results


@pytest.mark.parametrize("name", KINDS)
def test_healthy_starts_of_every_family_raise_no_alarm(make_kind, name):
    results = check_healthy_starts(make_kind(name), range(1), ROWS[:1])
    assert [result["num_samples"] for result in results] == [1, 1]
    assert all(result["difference"] <= result["limit"] for result in results)
    assert all(result["is_exact"] == (name not in EXPERT_KINDS) for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_two_hundred_healthy_starts_raise_no_alarm(make_kind, name):
    # 15 families, 2 seeds, 4 packings and 2 precisions make 240.
    results = check_healthy_starts(make_kind(name), range(1, 3), ROWS)
    assert len(results) == 16
    assert all(result["is_exact"] == (name not in EXPERT_KINDS) for result in results)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_5"])
def test_the_check_changes_no_bit_of_what_is_learned(make_kind, tmp_path, monkeypatch, name):
    trainer = trainer_of(make_kind(name), tmp_path)
    dropout = {"adapters": {"rank": 4, "dropout": 0.2}, "activation_checkpointing": True}
    torch.manual_seed(0)
    checked = trainer.train(name, **PACKED, **dropout)
    assert checked["packed_check"]["num_samples"] == 1
    monkeypatch.setattr(loop, "check_packed_rows", lambda *_, **__: None)
    torch.manual_seed(0)
    assert trainer.train(name, **PACKED, **dropout)["weights"] == checked["weights"]


def test_kernels_that_do_not_repeat_their_results_raise_no_alarm(make_kind, monkeypatch):
    kind = make_kind("qwen2_vl")
    model = kind.build().train()
    draws = torch.Generator().manual_seed(0)

    def unsteady(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * (1 + 1e-6 * torch.randn(output.shape, generator=draws))

    model.output_head().register_forward_hook(unsteady)
    samples = kind.samples()
    result = start(model, kind.batch(model, [samples[:2], samples[2:]]), kind, "fp32")
    assert result["is_exact"] is False
    assert 0 < result["difference"] < result["limit"]


def test_a_model_that_amplifies_rounding_is_judged_by_its_own_noise(make_kind, monkeypatch):
    kind = make_kind("qwen2_vl")
    model = kind.build().train()
    # Kernels may choose other tiles for a row of another length, or give the same bits by chance.
    lengths: list[int] = []
    *_, last = chain.from_iterable(model.towers())
    last.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    model.output_head().register_forward_hook(
        lambda _module, _inputs, output: output.float() * (1 + 1e-5 * lengths[-1])
    )
    samples = kind.samples()
    batch = kind.batch(model, [samples[:2], samples[2:]])
    monkeypatch.setattr(packed_check, "tolerance", lambda *_: 0.0)
    result = start(model, batch, kind, "bf16")
    assert 0 < result["difference"] <= result["limit"] < 1


def test_rows_of_one_sample_are_not_compared(make_kind, tmp_path):
    trainer = trainer_of(make_kind("qwen2_vl"), tmp_path)
    assert trainer.train("qwen2_vl", strategy="single", rows="mixed")["packed_check"] is None


def test_the_log_says_what_was_compared(make_kind, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        trainer_of(make_kind("qwen2_vl"), tmp_path).train("qwen2_vl", **PACKED)
    (message,) = [text for text in caplog.messages if text.startswith("packing: ")]
    assert "of 1 packed sample differ" in message
    assert message.endswith("no bit changes with other neighbours")


def test_the_message_names_the_sample_and_the_remedy(make_kind, tmp_path, monkeypatch):
    name, plant = LEAKS["cu_seqlens that are off by one"]
    trainer = trainer_of(make_kind(name), tmp_path)
    monkeypatch.setattr(loop, "check_attention", lambda *_, **__: None)
    config = trainer.config(name, strategy="single", attention="varlen")
    made = trainer.build_trained_model(name, config)
    plant(monkeypatch, made)
    with pytest.raises(PackingLeakError) as raised:
        trainer.make_steps(made, name, config, rows="packed")
    message = str(raised.value)
    assert raised.value.kind == "packing leak"
    for words in (
        "in the first batch of rank 0",
        "change its logits at ",
        "Nothing was learned. Set `attention: dense`, or `batching: {kind: grouped}`",
    ):
        assert words in message


def test_the_result_is_in_the_spans_of_every_attempt(make_train_run):
    run = make_train_run(
        batching={"kind": "packed", "max_tokens": 128, "max_images": 8},
        global_batch_size=2,
        num_lanes=2,
        checkpoint={"every_min": None, "every_steps": 2, "keep_last": 9},
        num_steps=4,
    )
    run.check_resume(step=2)
    for attempt in (1, 2):
        (span,) = run.spans(PACKED_CHECK_SPAN, attempt=attempt)
        check = read_packed_check([span])
        assert (check.num_samples, check.is_exact) == (1, True)
        assert check.difference < 1e-6
