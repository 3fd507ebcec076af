"""What step records say of a real training's work, and of themselves."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pipeline.timing.device_clock import CudaClock
from pipeline.train import trainer
from pipeline.train.checkpoints.restoring import Restored
from pipeline.train.device.rank_device import RankDevice, prepare_device
from pipeline.train.trainer import choose_clock, describe_flops
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.timings.step_records import DEVICE_FIELDS
from tests.contexts import make_context

LORA = {"rank": 2, "alpha": 4.0}


def place(device, precision):
    return RankDevice(device=torch.device(device), precision=precision, num_compute_threads=1)


@pytest.fixture(scope="module")
def kind(make_kind):
    return make_kind("qwen2_5_vl")


@pytest.fixture(scope="module")
def config(kind):
    """Each step has all four samples, each in a microbatch of its own: no padding."""
    return {
        "dataset": str(kind.dataset_dir),
        "model": {"type": "hugging_face", "path": str(kind.model_dir), "attention": "eager"},
        "num_steps": 2,
        "global_batch_size": 4,
        "num_lanes": 4,
        "num_microbatches": 4,
    }


@pytest.fixture(scope="module")
def counted(make_train_run, config):
    """A training in which everything learns, and the operations that torch has counted."""
    return count(make_train_run(**config))


def count(run):
    with FlopCounterMode(display=False) as counter:
        run.run_here()
    return run, counter.get_total_flops()


def check_count(run, counted_by_torch):
    said = run.steps()["model_flops"]
    # Torch counts the small image of the sample that has none, too.
    assert said.sum() == pytest.approx(counted_by_torch, rel=0.05)
    assert len(set(said.tolist())) == 1


@pytest.mark.parametrize(
    "changes", [{"learn": ["projector"]}, {"adapters": {**LORA, "dropout": 0.0}}]
)
def test_operations_of_a_training_are_those_that_torch_counts(
    make_train_run, config, counted, changes
):
    check_count(*counted)
    check_count(*count(make_train_run(**config, **changes)))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_strategy_changes_no_count(make_train_run, config, counted, strategy):
    run = make_train_run(**config)
    run.run_here(strategy=strategy)
    assert run.steps()["model_flops"].tolist() == counted[0].steps()["model_flops"].tolist()


def test_each_phase_counts_what_it_trains(make_train_run, config):
    phases = [
        {"name": "projector", "learn": ["projector"], "num_steps": 1},
        {"name": "lora", "learn": ["projector", "adapters"], "num_steps": 2},
        {"name": "all", "learn": ["all"], "num_steps": 1},
    ]
    run = make_train_run(**{**config, "num_steps": None}, phases=phases, adapters=LORA)
    run.run_here()
    projector, lora, again, everything = run.steps()["model_flops"]
    assert projector < lora == again < everything
    # The language model is nearly all; frozen it costs 4 of 6.
    assert 0.6 < lora / everything < 0.75


def test_packing_keeps_the_operations_and_image_tokens_of_the_samples(
    make_train_run, config, counted, kind
):
    packed = make_train_run(**config)
    packed.run_here(
        num_lanes=1, num_microbatches=1, num_steps=2,
        batching={"kind": "packed", "max_tokens": 2048},
    )  # fmt: skip
    ones, twos = counted[0].steps(), packed.steps()
    token = kind.facts.info.image_token_id
    expected = sum(int((s.input_ids == token).sum()) for s in kind.samples())
    assert ones["num_image_tokens"].tolist() == [expected] * 2
    per_sample = twos["model_flops"].sum() / twos["num_samples"].sum()
    assert per_sample == pytest.approx(ones["model_flops"].sum() / ones["num_samples"].sum())
    assert twos["num_image_tokens"].sum() * 4 == expected * twos["num_samples"].sum()


def test_on_a_cpu_there_is_a_formula_and_no_share_of_a_peak(make_train_run):
    run = make_train_run(num_steps=2, timing="sync")
    run.run_here()
    file = run.records()
    assert file.metadata["timing"] == "sync"
    assert file.metadata["cores"] == ranges_text(sorted(os.sched_getaffinity(0)))
    assert file.metadata["cores_near_gpu"] == ""
    flops = file.metadata["flops"]
    assert "6 N + 12 L H Q T" in flops["formula"]
    assert (flops["card"], flops["peak_flops_per_s"], flops["peak_source"]) == (None, None, None)
    assert all(np.isnan(file.steps[name]).all() for name in (*DEVICE_FIELDS, "mfu"))
    assert (file.steps["num_image_tokens"] > 0).all()
    assert run.spans("trackers_start") == []


@pytest.mark.parametrize(
    ("precision", "card", "peak"),
    [
        ("bf16", "NVIDIA A100-SXM4-80GB", 312e12),
        ("fp32", "Tesla V100-SXM2-16GB", 15.7e12),
        ("bf16", "", None),
        ("bf16", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ],
)
def test_the_peak_of_a_known_card_comes_with_its_source(precision, card, peak):
    found = describe_flops(place("cuda", precision), card)
    assert found["peak_flops_per_s"] == peak
    assert peak is None or "data sheet" in found["peak_source"]


@pytest.mark.parametrize(("tf32", "peak"), [(False, 67e12), (True, 494e12)])
def test_the_peak_in_fp32_is_that_of_tf32_where_it_is_on(tf32, peak, tmp_path):
    config = TrainConfig(num_steps=1, device="cpu", tf32=tf32)
    prepare_device(config, make_context("train", tmp_path))
    assert torch.backends.cudnn.allow_tf32 == tf32
    found = describe_flops(place("cuda", "fp32"), "NVIDIA H100 80GB HBM3")
    assert found["peak_flops_per_s"] == peak


def test_a_gpu_is_timed_by_events_or_by_waiting_and_a_cpu_by_neither(monkeypatch):
    gpu, cpu, waited = torch.device("cuda", 1), torch.device("cpu"), []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    clock, synchronize = choose_clock(gpu, "events")
    assert isinstance(clock, CudaClock)
    assert synchronize is None
    clock, synchronize = choose_clock(gpu, "sync")
    assert clock is None
    synchronize()
    assert waited == [gpu]
    assert choose_clock(cpu, "events") == choose_clock(cpu, "sync") == (None, None)


def test_no_look_is_made_with_weights_that_were_not_loaded():
    passed_over = Restored(step=3, loss=0.5, is_loaded=False)
    training = SimpleNamespace(
        job=None,
        current=SimpleNamespace(resumed=passed_over),
        _share=object(),
        evaluate_held_out=None,
    )
    trainer.Trainer._start_held_out(training)
    assert training.evaluate_held_out is None


@pytest.mark.parametrize(("levels", "names"), [((), ["a", "b"]), (("first",), [])])
def test_losses_by_manifest_are_recorded_unless_levels_are_learned(levels, names):
    info = SimpleNamespace(manifests=[SimpleNamespace(name=name) for name in ("a", "b")])
    job = SimpleNamespace(config=SimpleNamespace(levels=levels), rank_device=None, ranks=None)
    source = SimpleNamespace(dataset=SimpleNamespace(info=info))
    assert trainer.Trainer(job, [], [source], None).manifests == names
