"""The whole stage by files of accelerate: resume, other strategies' checkpoints, export."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file

from slurm_jobs.shared.records import record_to_json
from tests.contexts import make_context
from tests.pipeline.models.tiny import write_dataset, write_tiny

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
FSDP = {
    "distributed_type": "FSDP",
    "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
}
DDP = {"distributed_type": "MULTI_CPU"}
NUM_ADAPTED = 14
"""Seven linear layers in each of two layers."""


@pytest.fixture(scope="module")
def attempts(tmp_path_factory, make_train_run):
    """Of one training: by an FSDP file, then from its step 3 again, by `fsdp2`, by a DDP file."""
    folder = tmp_path_factory.mktemp("accelerate")
    dataset_dir = write_dataset("qwen2_5_vl", folder)
    model_dir = write_tiny("qwen2_5_vl", folder / "model")
    by_file = {}
    for name, values in (("fsdp", FSDP), ("ddp", DDP)):
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        by_file[name] = {"strategy": "accelerate", "accelerate": {"config": str(path)}}
    run = make_train_run(
        dataset=str(dataset_dir),
        model={"type": "hugging_face", "path": str(model_dir)},
        global_batch_size=4,
        num_lanes=2,
        num_microbatches=2,
        optimizer={"learning_rate": 1e-2, "weight_decay": 0.1},
        adapters={"rank": 4, "alpha": 8.0},
        learn=["adapters", "projector"],
        checkpoint={"every_steps": 3, "every_min": None, "keep_last": 4},
    )
    ours = {"strategy": "fsdp2", "sharding": {"unit_min_params": 0}}
    results = make_attempts(run, [by_file["fsdp"], by_file["fsdp"], ours, by_file["ddp"]])
    return SimpleNamespace(root=run.root, results=results, model_dir=model_dir)


def make_attempts(run, changes):
    """One after the other, on one pair of ranks; the results of rank 0."""
    ports = [run._new_port() for _ in changes]
    processes = []
    for rank in range(2):
        contexts = [
            make_context(
                "train",
                run.root,
                attempt=number,
                rank=rank,
                num_ranks=2,
                local_rank=rank,
                num_local_ranks=2,
                main_port=port,
                timing_dir=run.timing_dir(number),
                task_dir=run.root / "tasks" / str(number),
                config={**run.config, **changed},
            )
            for number, (changed, port) in enumerate(zip(changes, ports, strict=True), start=1)
        ]
        file = run.root / f"contexts.{rank}.json"
        file.write_text(json.dumps([record_to_json(context) for context in contexts]))
        script = Path(__file__).with_name("stage_pair.py")
        command = [sys.executable, str(script), str(file), str(run.root / f"found.{rank}.json")]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(
                command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
        )
    run._processes += processes
    ends = run.finish(processes)
    assert [code for code, _ in ends] == [0, 0], ends[0][1] + ends[1][1]
    return json.loads((run.root / "found.0.json").read_text())


def weights(attempts, number, name="model/model.safetensors"):
    return load_file(attempts.root / f"kept.{number}" / name)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_resume_is_bit_for_bit_the_undisturbed_training(attempts):
    assert [result["resumed_from_step"] for result in attempts.results] == [0, 3, 3, 3]
    assert same(weights(attempts, 1), weights(attempts, 2))
    assert attempts.results[0]["final_loss"] == attempts.results[1]["final_loss"]


def test_our_own_sharding_goes_on_from_accelerates_checkpoint_bit_for_bit(attempts):
    assert attempts.results[2]["strategy"] == "fsdp2"
    assert same(weights(attempts, 1), weights(attempts, 3))


def test_accelerates_ddp_goes_on_from_its_sharded_checkpoint(attempts):
    first, last = attempts.results[0], attempts.results[3]
    assert last["spread"]["distributed_type"] == "MULTI_CPU"
    assert last["final_loss"] == pytest.approx(first["final_loss"], rel=1e-5)
    for name, value in weights(attempts, 4).items():
        torch.testing.assert_close(value, weights(attempts, 1)[name], rtol=1e-3, atol=1e-4)


def test_the_export_has_every_tensor_and_every_adapter(attempts):
    base = load_file(attempts.model_dir / "model.safetensors")
    for number in range(1, 5):
        whole = weights(attempts, number)
        assert whole.keys() == base.keys()
        changed = {name for name in base if not torch.equal(whole[name], base[name])}
        assert sum("layers" in name for name in changed) == NUM_ADAPTED
        assert any("merger" in name for name in changed)
        adapters = weights(attempts, number, "adapters/adapter_model.safetensors")
        assert sum(".lora_" in name for name in adapters) == 2 * NUM_ADAPTED
        beside = {name for name in adapters if ".lora_" not in name}
        assert len(beside) == sum("merger" in name for name in base)


def test_the_result_tells_what_the_file_came_to(attempts):
    spread = attempts.results[0]["spread"]
    assert spread["distributed_type"] == "FSDP"
    assert spread["mesh"] == {"shard": 2}
    assert list(spread["placements"]) == ["Shard(dim=0)"]
    assert spread["num_units"] == 5
