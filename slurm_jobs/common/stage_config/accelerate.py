"""Where `strategy: accelerate` finds what it does."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import InputPath


@dataclass(frozen=True, kw_only=True, slots=True)
class AccelerateConfig:
    """What `strategy: accelerate` does."""

    config: InputPath
    """A file as `accelerate config` writes it: `distributed_type` MULTI_GPU, FSDP (version 2),
    MULTI_CPU or NO. Its `mixed_precision` is taken with `precision: auto`."""
