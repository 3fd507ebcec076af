"""What differs between a checkpoint and the state that a training wants."""

from __future__ import annotations

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)

from pipeline.train.checkpoints.state_differences import compare


def stored_tensor(*size, dtype=torch.float32):
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype), size=torch.Size(size), chunks=[]
    )


STORED = {
    "model.a": stored_tensor(2, 3),
    "optimizer.param_groups.0.lr": BytesStorageMetadata(),
    "rng.rank-00000.cpu": stored_tensor(8, dtype=torch.uint8),
    "rng.rank-00001.cpu": stored_tensor(8, dtype=torch.uint8),
}


def state(*, dtype=torch.float32, **more):
    a = torch.zeros(2, 3, dtype=dtype)
    rng = {"rank-00000": {"cpu": torch.zeros(8, dtype=torch.uint8)}}
    return {"model": {"a": a}, "optimizer": {"param_groups": [{"lr": 0.1, **more}]}, "rng": rng}


def test_a_rank_wants_its_own_generators_and_not_those_of_others():
    assert not compare(STORED, state())


def test_dtypes_are_compared_though_torch_would_cast():
    differences = compare(STORED, state(dtype=torch.bfloat16))
    assert list(differences.different) == [
        "model.a ((2, 3) of torch.float32 in the checkpoint, (2, 3) of torch.bfloat16 now)"
    ]


def test_a_tensor_where_a_value_is_wanted_is_a_difference():
    stored = {**STORED, "optimizer.param_groups.0.lr": stored_tensor()}
    assert str(compare(stored, state())) == (
        "different: optimizer.param_groups.0.lr (() of torch.float32 in the checkpoint, "
        "a value now)"
    )


def test_the_first_missing_names_are_listed_and_the_others_counted():
    more = {f"option_{n}": n for n in range(7)}
    names = ", ".join(f"optimizer.param_groups.0.option_{n}" for n in range(5))
    assert str(compare(STORED, state(**more))) == f"not in the checkpoint: {names} and 2 more"


def test_unexpected_tensors_are_listed_but_not_options_of_another_torch():
    stored = {
        **STORED,
        "optimizer.state.a.exp_avg": stored_tensor(2, 3),
        "optimizer.param_groups.0.decoupled": BytesStorageMetadata(),
    }
    assert list(compare(stored, state()).unexpected) == ["optimizer.state.a.exp_avg"]
