"""Weights in 4 bits that this torch cannot shard."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.computation.torch_versions import can_shard_whole_numbers
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategy_checks.quantized_weights import check_dtypes
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig

CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


@pytest.mark.parametrize(("version", "can"), [("2.11.0+cu130", False), ("2.12.1", True)])
def test_a_torch_that_cannot_shard_4_bits_is_refused_under_fsdp2_only(monkeypatch, version, can):
    monkeypatch.setattr(torch, "__version__", version)
    assert can_shard_whole_numbers() == can
    values = {"num_steps": 1, "adapters": {"rank": 4}, "quantize": {}}
    for strategy in ("single", "ddp"):
        check_dtypes(build_config(TrainConfig, {**values, "strategy": strategy}), CPU)
    sharded = build_config(TrainConfig, {**values, "strategy": "fsdp2"})
    if can:
        check_dtypes(sharded, CPU)
    else:
        with pytest.raises(StageConfigError, match=rf"torch {version[:6]}.* set `strategy: ddp`"):
            check_dtypes(sharded, CPU)
