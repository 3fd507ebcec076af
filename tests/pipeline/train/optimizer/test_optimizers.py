"""Which parameters decay, memory of the state, and optimizers across attempts."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp

from pipeline.train.optimizer import optimizers as optimizer
from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.optimizer.learning_rate import set_learning_rate
from pipeline.train.optimizer.optimizers import make_optimizer, parameter_groups, state_bytes
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import OptimizerConfig
from tests.pipeline.train.tiny_runs import SAVED, tiny_config


def make_model():
    return torch.nn.ModuleDict(
        {"linear": torch.nn.Linear(2, 2), "position_embedding": torch.nn.Embedding(2, 2)}
    )


def test_matrices_decay_and_vectors_and_positions_do_not():
    model = make_model()
    decayed, plain = parameter_groups(model, 0.1)
    assert [p is model["linear"].weight for p in decayed["params"]] == [True]
    assert decayed["weight_decay"] == 0.1
    assert len(plain["params"]) == 2
    assert plain["weight_decay"] == 0.0


def test_a_group_of_nothing_is_left_out():
    model = make_model()
    model["linear"].weight.requires_grad_(False)
    (plain,) = parameter_groups(model, 0.1)
    assert plain["weight_decay"] == 0.0
    assert len(plain["params"]) == 2


@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit"])
def test_an_update_without_a_gradient_applies_only_the_weight_decay(kind):
    model = make_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(model, OptimizerConfig(kind=kind, learning_rate=0.5, weight_decay=0.1)).step()
    shrunk = {"linear.weight": 1 - 0.5 * 0.1}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * shrunk.get(name, 1.0))


def test_learning_rate_of_a_step_is_the_one_that_was_set_last():
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw_8bit", weight_decay=0.0))
    set_learning_rate(optimizer, 0.25)
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.25)


def test_a_parameter_that_was_replaced_is_not_updated_in_silence():
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = make_optimizer(model, OptimizerConfig(kind="adamw_8bit"))
    model.weight.data = model.weight.data.clone()
    model.weight.grad = torch.ones_like(model.weight)
    with pytest.raises(AssertionError):
        optimizer.step()


@pytest.mark.parametrize("kind", ["paged_adamw", "paged_adamw_8bit"])
def test_paged_state_is_refused_without_a_gpu(kind):
    with pytest.raises(StageConfigError, match=f"{kind}, .* are on a cpu: set `kind: adamw"):
        make_optimizer(make_model(), OptimizerConfig(kind=kind))


@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit"])
def test_the_memory_of_the_state_is_known_before_there_is_one(kind):
    config = OptimizerConfig(kind=kind)
    model = torch.nn.ModuleList([torch.nn.Linear(512, 512), torch.nn.Linear(8, 8)])
    optimizer = make_optimizer(model, config)
    expected = state_bytes(optimizer, config, "cpu")
    assert state_bytes(optimizer, config, "cuda") == 0  # where weights are offloaded
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = optimizer.state_dict()
    states = states["state"] if kind == "adamw" else states
    moments = [
        value.nbytes
        for state in states.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.ndim
    ]
    assert sum(moments) == pytest.approx(expected, rel=0.02)


EIGHT_BIT = {"kind": "adamw_8bit", "learning_rate": 1e-3}
EIGHT_BITS = {**SAVED, "optimizer": EIGHT_BIT}
VECTORS = {**SAVED, "optimizer": {"learning_rate": 1e-2}, "learn": ["*.bias"]}


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


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_training_of_vectors_alone_resumes_even_from_an_empty_group(
    make_train_run, monkeypatch, strategy
):
    """Nothing has weight decay: a group of nothing would take the other's state."""
    run, older = make_train_run(**VECTORS), make_train_run(**VECTORS)
    run.check_resume(strategy=strategy)
    # An older version wrote such a group; without the mend the first step has no `betas`.
    with monkeypatch.context() as before:
        really = optimizer.parameter_groups
        nothing = {"params": [], "weight_decay": 0.5}
        before.setattr(optimizer, "parameter_groups", lambda *given: [nothing, *really(*given)])
        older.run_here(strategy=strategy)
    assert older.weights() == run.weights()
    older.forget(2)
    assert older.run_here(strategy=strategy)["resumed_from_step"] == 2
    assert older.weights() == run.weights()


def test_what_8_bit_state_is_left_out_changes_the_weights(make_train_run, eight_bit, monkeypatch):
    """Or the tests here would pass without it."""
    run = make_train_run(**EIGHT_BITS).take(eight_bit, forget_after=2)
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
