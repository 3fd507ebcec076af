"""The benchmark of training: what is compared, and that nobody does more than the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import transformers as hf

from benchmarks.training import fastest, prepare
from benchmarks.training_data import REAL, TINY, make_config, make_processor
from benchmarks.training_job import StepEnd, TrainingJob, TrainingResult
from benchmarks.training_rows import ALL_WAYS, compare_learning, compare_speed
from benchmarks.training_stage import run_train
from benchmarks.training_ways import WAYS, train
from slurm_jobs.base.errors import StageConfigError

STEP = StepEnd(unix_s=0.0, num_tokens=100, model_flops=1e12, loss=2.0, grad_norm=1.5)
JOB = TrainingJob(
    folder=Path(),
    num_steps=2,
    batch_size=32,
    at_once=8,
    row_tokens=512,
    device="cpu",
    precision="fp32",
    logs_steps=True,
)


def result_at(step_s: float, memory_peak_bytes: int | None = None) -> TrainingResult:
    """Four steps of a second each way's own."""
    steps = tuple(dataclasses.replace(STEP, unix_s=(n + 1) * step_s) for n in range(4))
    return TrainingResult(steps=steps, memory_peak_bytes=memory_peak_bytes)


def test_mfu_and_rate_are_of_the_timed_steps_alone() -> None:
    runs = {way: [result_at(1.0 if way == "ours" else 2.0, 10**9)] for way in ALL_WAYS}
    rows = compare_speed(runs, dict.fromkeys(ALL_WAYS, JOB), "model", peak_flops_per_s=4e12)
    values = {(row.case, row.peer): (row.ours, row.peer_value) for row in rows}
    assert values["model: packed", "Trainer, 8 at once"] == (100.0, 50.0)
    assert values["model: MFU", "SFTTrainer, 8 at once"] == (25.0, 12.5)
    assert values["model: peak memory", "ours unpacked, 8 at once"] == (1.0, 1.0)


def test_on_a_cpu_there_is_neither_mfu_nor_memory() -> None:
    runs = {way: [result_at(1.0)] for way in ALL_WAYS}
    rows = compare_speed(runs, dict.fromkeys(ALL_WAYS, JOB), "model", peak_flops_per_s=None)
    assert {row.case for row in rows} == {"model: packed"}


def test_each_way_takes_the_fastest_of_what_fits() -> None:
    assert fastest({8: result_at(2.0), 16: result_at(1.0), 32: None}) == 16
    with pytest.raises(RuntimeError, match="not even 8 samples at once fit"):
        fastest({8: None, 16: None})


def test_exhausted_memory_that_caused_another_error_gives_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stage raises its own error, caused by the error of the card."""

    def fail(_job: TrainingJob) -> list[StepEnd]:
        message = "no memory left"
        raise StageConfigError(message) from torch.OutOfMemoryError(message)

    def refuse(_job: TrainingJob) -> list[StepEnd]:
        message = "another problem"
        raise StageConfigError(message)

    monkeypatch.setitem(WAYS, "ours", fail)
    monkeypatch.setitem(WAYS, "Trainer", refuse)
    assert train("ours", JOB) is None
    with pytest.raises(StageConfigError, match="another problem"):
        train("Trainer", JOB)


def test_another_scale_of_gradients_is_seen_where_losses_are_the_same() -> None:
    scaled = dataclasses.replace(STEP, grad_norm=4 * 1.5)
    rows = compare_learning({"Trainer": [STEP], "ours": [scaled]})
    assert {row.case.partition(" of ")[0]: row.met for row in rows} == {
        "losses": True,
        "gradient norms": False,
    }


def test_other_samples_are_an_error() -> None:
    other = dataclasses.replace(STEP, num_tokens=99)
    with pytest.raises(RuntimeError, match=r"step 0 of ours is not of the Trainer's samples"):
        compare_learning({"Trainer": [STEP], "ours": [other]})


def test_the_large_model_has_the_sizes_that_its_parts_are_published_with() -> None:
    with torch.device("meta"):
        model = hf.LlavaForConditionalGeneration(make_config(REAL, make_processor(REAL).tokenizer))
    language = sum(p.numel() for p in model.model.language_model.parameters())
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert round(language / 1e6) == 3086  # Qwen2.5-3B
    assert round(model.model.vision_tower.num_parameters() / 1e6) == 413  # SigLIP, no pooling head


def test_our_training_saves_and_exports_nothing(tmp_path: Path) -> None:
    job = dataclasses.replace(JOB, folder=prepare(tmp_path / "job", TINY, 32))
    steps = run_train(job, "packed", tmp_path / "run")
    written = [path for path in (tmp_path / "run/train").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in written) < 100_000  # the weights are 12 MB
    assert list(steps["num_samples"]) == [32, 32]


@pytest.mark.slow
def test_ours_and_transformers_trainer_learn_the_same(tmp_path: Path) -> None:
    job = dataclasses.replace(JOB, folder=prepare(tmp_path / "job", TINY, 32))
    rows = compare_learning({way: WAYS[way](job) for way in ("Trainer", "ours")})
    assert [row.met for row in rows] == [True, True]
