"""8-bit state across attempts, ranks and strategies."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp

from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from tests.pipeline.train.tiny_runs import SAVED, tiny_config

EIGHT_BIT = {"kind": "adamw_8bit", "learning_rate": 1e-3}
EIGHT_BITS = {**SAVED, "optimizer": EIGHT_BIT}


def stored(run):
    return dcp.FileSystemReader(run.checkpoint(4)).read_metadata().state_dict_metadata


@pytest.fixture(scope="module")
def eight_bit(make_train_run):
    run = make_train_run(**EIGHT_BITS)
    run.run_here()
    return run


def test_8_bit_state_goes_on_bit_for_bit(make_train_run, eight_bit):
    run = make_train_run(**EIGHT_BITS).take(eight_bit, forget_after=2)
    assert run.run_here()["resumed_from_step"] == 2
    assert run.weights() == eight_bit.weights()
    sharded = make_train_run(**EIGHT_BITS)
    sharded.check_resume(strategy="fsdp2")
    for each in (eight_bit, sharded):
        dtypes = {v.properties.dtype for n, v in stored(each).items() if n.endswith(".state1")}
        assert dtypes == {torch.uint8, torch.float32}  # of small tensors


def test_what_8_bit_state_is_left_out_changes_the_weights(make_train_run, eight_bit, monkeypatch):
    """Or the tests here would pass without it."""
    run = make_train_run(**EIGHT_BITS).take(eight_bit, forget_after=2)
    monkeypatch.setattr(LocalOptimizer, "load_state_dict", lambda *_: None)
    live_state = LocalOptimizer.state_dict
    monkeypatch.setattr(LocalOptimizer, "state_dict", lambda self: copy.deepcopy(live_state(self)))
    assert run.run_here()["resumed_from_step"] == 2
    assert run.weights() != eight_bit.weights()


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
    run = make_train_run(**{**tiny_config(made), **changes, **EIGHT_BITS})
    run.run()
    return run


@pytest.mark.slow
def test_qlora_resumes_exactly_on_two_ranks_with_scaler_and_8_bit_state(qlora):
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
    assert qlora.checkpoint(2).exists()
    assert qlora.checkpoint(4).exists()
    two = qlora.losses(1)[2:]
    qlora.forget(2)
    assert qlora.run_here(strategy=strategy, sharding={})["resumed_from_step"] == 2
    one = qlora.losses()
    assert one == pytest.approx(two, rel=2e-3)
    assert len(one) == 2
