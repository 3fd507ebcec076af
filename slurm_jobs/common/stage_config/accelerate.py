"""Config of `strategy: accelerate`."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import InputPath


@dataclass(frozen=True, kw_only=True, slots=True)
class AccelerateConfig:
    """Settings of `strategy: accelerate`."""

    config: InputPath
    """File in the format of `accelerate config`: `distributed_type` MULTI_GPU, FSDP (version 2),
    MULTI_CPU or NO. Its `mixed_precision` applies with `precision: auto`."""
