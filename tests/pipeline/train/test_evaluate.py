"""The evaluation after training: its precision and memory, and what is said of answers."""

import weakref

import pytest
import torch

from pipeline.train import evaluate, stage
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.evaluate import Generation, evaluation_dtype, summarise
from pipeline.train.trainer import Trainer
from tests.pipeline.build import write_csv_manifest


@pytest.mark.parametrize(
    ("device", "precision", "strategy", "dtype"),
    [("cuda", "bf16", "ddp", torch.bfloat16), ("cuda", "fp16", "fsdp2", torch.float16),
     ("cuda", "fp16", "ddp", torch.float32), ("cuda", "fp16", "single", torch.float32),
     ("cuda", "fp32", "ddp", torch.float32), ("cpu", "bf16", "fsdp2", torch.float32)],
)  # fmt: skip
def test_evaluation_halves_weights_on_a_gpu_unless_fp16_held_them_whole(
    device, precision, strategy, dtype
):
    place = RankDevice(device=torch.device(device), precision=precision, num_compute_threads=1)
    assert evaluation_dtype(place, strategy) == dtype


def test_weights_in_half_precision_answer(asking, monkeypatch):
    """On a CPU, as they would on a GPU."""
    run, _ = asking
    monkeypatch.setattr(stage, "evaluation_dtype", lambda rank_device, _: rank_device.dtype)
    loaded = []
    monkeypatch.setattr(evaluate, "load_heads", lambda model, _: loaded.append(model))
    result = run.run_here(precision="bf16", num_steps=1)
    assert result["evaluation"]["num_samples"] == 3
    assert {parameter.dtype for parameter in loaded[0].parameters()} == {torch.bfloat16}


PHASES = [
    {"name": "first", "num_steps": 1, "learn": ["projector"]},
    {"name": "second", "num_steps": 1},
]


@pytest.mark.parametrize(
    "config",
    [{"strategy": "single"}, {"strategy": "ddp", "phases": PHASES, "num_steps": None},
     {"strategy": "fsdp2"},
     {"strategy": "fsdp2", "adapters": {"rank": 2}, "activation_checkpointing": True}],
)  # fmt: skip
def test_model_and_optimizer_are_freed_when_the_evaluation_begins(
    make_train_run, tmp_path, monkeypatch, config
):
    """Model and optimizer have given back their memory, which they would take of a GPU's."""
    manifest = write_csv_manifest(tmp_path / "heldout", 3)
    looks = {"manifest": str(manifest), "every_steps": 1, "num_answers": 1, "max_new_tokens": 1}
    run = make_train_run(evaluate=looks, num_microbatches=2, **{"num_steps": 2, **config})
    held, found = [], []
    really_train = Trainer.train

    def train(trainer, trackers):
        really_train(trainer, trackers)
        parallel = trainer.model.parallel
        both = (parallel.bare, parallel.optimizer, *parallel.optimizer.param_groups[0]["params"])
        held.extend(weakref.ref(each) for each in both)

    def evaluate_nothing(*_, **__):
        found.extend(ref() is None for ref in held)
        return {}

    monkeypatch.setattr(Trainer, "train", train)
    monkeypatch.setattr(stage, "evaluate", evaluate_nothing)
    run.run_here(strategy=config["strategy"])
    assert len(found) > 3
    assert all(found)


def test_summary_counts_exact_answers_and_distinct_references():
    def generation(row, reference, text):
        return Generation(
            row=row, key="", reference=reference, generated=text, exact=reference == text
        )

    rows = [generation(0, "a", "a"), generation(1, "a", "b"), generation(2, "c", "c")]
    summary = summarise(rows, num_rejected=1)
    assert summary["exact_match"] == pytest.approx(2 / 3)
    assert (summary["num_distinct_references"], summary["num_rejected"]) == (2, 1)
    assert summarise([], num_rejected=0)["exact_match"] is None
