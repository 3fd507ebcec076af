"""The whole stage by files of accelerate: resume, other strategies' checkpoints, export."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.pipeline.train.tiny_runs import tiny_config

pytestmark = pytest.mark.slow

FSDP = {
    "distributed_type": "FSDP",
    "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
}
DDP = {"distributed_type": "MULTI_CPU"}
NUM_ADAPTED = 14
"""Seven linear layers in each of two layers."""


def by_file(folder, values):
    path = folder / f"{values['distributed_type']}.yaml"
    path.write_text(yaml.safe_dump(values))
    return {"strategy": "accelerate", "accelerate": {"config": str(path)}}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory, made, make_train_run):
    """Of one training: by an FSDP file, then from its step 3 again, by `fsdp2`, by a DDP file."""
    folder = tmp_path_factory.mktemp("accelerate")
    config = {
        "num_microbatches": 2,
        "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.1},
        "adapters": {"rank": 4, "alpha": 8.0},
        "learn": ["adapters", "projector"],
        "checkpoint": {"every_steps": 3, "every_min": None, "keep_last": 4},
    }
    run = make_train_run(**tiny_config(made, **config | {"schedule": {}}))
    fsdp, ddp = by_file(folder, FSDP), by_file(folder, DDP)
    ours = {"strategy": "fsdp2", "sharding": {"unit_min_params": 0}}
    results = make_attempts(run, [fsdp, fsdp, ours, ddp])
    return SimpleNamespace(root=run.root, results=results, model_dir=made[1])


def make_attempts(run, changes):
    """One after the other, on one pair of ranks; the results of rank 0."""
    ports = [run.new_port() for _ in changes]
    processes = []
    for rank in range(2):
        contexts = [
            run.context(
                rank, 2, attempt=number, main_port=port, parents=(), config=run.config | changed
            )
            for number, (changed, port) in enumerate(zip(changes, ports, strict=True), start=1)
        ]
        processes.append(run.spawn("stage_pair.py", rank, *contexts))
    ends = run.finish(processes)
    assert [code for code, _ in ends] == [0, 0], ends[0][1] + ends[1][1]
    return run.result()


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


def test_the_result_has_the_parallelism_that_the_file_gives(attempts):
    facts = attempts.results[0]["spread"]
    assert facts["distributed_type"] == "FSDP"
    assert facts["mesh"] == {"shard": 2}
    assert list(facts["placements"]) == ["Shard(dim=0)"]
    assert facts["num_units"] == 5
