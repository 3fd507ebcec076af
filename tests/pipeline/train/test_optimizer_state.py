"""Optimizers of bitsandbytes across attempts: bit for bit with as many ranks, or nearly."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp

from pipeline.train import optimizer
from tests.pipeline.train.tiny_runs import tiny_config

EIGHT_BIT = {"kind": "adamw_8bit", "learning_rate": 1e-3}
LAST, BEFORE = "step-00000004", "step-00000002"
SAVED = {
    "num_steps": 4,
    "optimizer": EIGHT_BIT,
    "checkpoint": {"every_steps": 2, "every_min": None, "keep_last": 4},
}


def stored(run):
    folder = run.output_dir / "checkpoints" / LAST
    return dcp.FileSystemReader(folder).read_metadata().state_dict_metadata


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_8_bit_state_goes_on_bit_for_bit(make_train_run, strategy):
    run = make_train_run(**SAVED)
    run.check_resume(strategy=strategy)
    dtypes = {v.properties.dtype for n, v in stored(run).items() if n.endswith(".state1")}
    assert dtypes == {torch.uint8, torch.float32}  # of small tensors


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_training_of_vectors_alone_goes_on_bit_for_bit(make_train_run, strategy):
    """Nothing has weight decay: a group of nothing would take the other's state."""
    run = make_train_run(**{**SAVED, "optimizer": {"learning_rate": 1e-2}, "learn": ["*.bias"]})
    run.check_resume(strategy=strategy)


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_a_checkpoint_that_has_a_group_of_nothing_is_gone_on_from(
    make_train_run, monkeypatch, strategy
):
    """As an older version wrote it; without the mend the first step has no `betas`."""
    run = make_train_run(**{**SAVED, "optimizer": {"learning_rate": 1e-2}, "learn": ["*.bias"]})
    with monkeypatch.context() as before:
        really = optimizer.parameter_groups
        nothing = {"params": [], "weight_decay": 0.5}
        before.setattr(optimizer, "parameter_groups", lambda *given: [nothing, *really(*given)])
        run.run_here(strategy=strategy)
    weights = run.weights()
    run.forget(2)
    assert run.run_here(strategy=strategy)["resumed_from_step"] == 2
    assert run.weights() == weights


def test_what_8_bit_state_is_left_out_changes_the_weights(make_train_run, monkeypatch):
    """Or the tests here would pass without it."""
    from pipeline.train.optimizer import LocalOptimizer

    run = make_train_run(**SAVED)
    run.run_here()
    before = run.weights()
    run.forget(2)
    monkeypatch.setattr(LocalOptimizer, "load_state_dict", lambda *_: None)
    really = LocalOptimizer._state_of
    monkeypatch.setattr(
        LocalOptimizer,
        "state_dict",
        lambda self: {
            name: {k: v.clone() if isinstance(v, torch.Tensor) else v
                   for k, v in really(self, *place).items()}
            for name, place in self._places()
        },
    )  # fmt: skip
    assert run.run_here()["resumed_from_step"] == 2
    assert run.weights() != before


@pytest.fixture(scope="module")
def qlora(made, make_train_run):
    """Two ranks in fp16 whose adapters are large enough to have 8-bit state on each."""
    changes = {
        "adapters": {"rank": 256, "alpha": 256.0},
        "quantize": {},
        "schedule": {},
        "precision": "fp16",
        "sharding": {"unit_min_params": 0},
    }
    run = make_train_run(**{**tiny_config(made), **changes, **SAVED})
    run.run()
    return run


@pytest.mark.slow
def test_qlora_of_two_ranks_goes_on_bit_for_bit_with_scaler_and_8_bit_state(qlora):
    before = qlora.weights()
    names = stored(qlora)
    for rank in range(2):
        own = [n for n in names if n.startswith(f"extra.rank-{rank:05d}.optimizer.")]
        dtypes = {names[n].properties.dtype for n in own if n.endswith(".state1")}
        assert torch.uint8 in dtypes
        assert f"extra.rank-{rank:05d}.scaler.scale" in names
    qlora.forget(2)
    assert qlora.run()["resumed_from_step"] == 2
    assert qlora.weights() == before


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp2", "single"])
def test_one_rank_goes_on_from_the_8_bit_state_of_two_within_its_rounding(qlora, strategy):
    """Blocks of other parts round otherwise; the losses are those of the two ranks."""
    for name in (LAST, BEFORE):
        assert (qlora.output_dir / "checkpoints" / name).exists()
    two = qlora.losses(1)[2:]
    qlora.forget(2)
    assert qlora.run_here(strategy=strategy, sharding={})["resumed_from_step"] == 2
    one = qlora.losses()
    assert one == pytest.approx(two, rel=2e-3)
    assert len(one) == 2
