"""Measures and differences of runs as plain values. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.report.comparison.speed_verdict import Verdict
from slurm_jobs.report.values.training_model import ExposedCommunication


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMeasure:
    """Measures of one run's training, waits included, other work than training separated."""

    run_id: str
    name: str
    stage: str
    num_ranks: int
    device: str
    """`cuda`, `cpu`; empty if not recorded."""
    nodes: tuple[str, ...]
    cards: tuple[str, ...]
    """Names of the GPUs in its nodes' readings, each once, in order."""
    cpus: tuple[str, ...]
    """Models of its nodes' processors, each once, in order."""
    num_steps: int
    """Steps of the speeds: after the warm-up, without compiled or profiled ones."""
    seconds: float
    """Time of these steps, without the separated work."""
    tokens_per_s: float
    """Tokens without padding, of all ranks; 0 if not counted."""
    samples_per_s: float
    samples_per_step: float
    """Sum over all ranks: the global batch."""
    tokens_per_sample: float
    token_stretches: tuple[float, ...]
    """Tokens/s of stretches of the run, in order; see `stretch_speeds`."""
    apart_s: Mapping[str, float]
    """Seconds over all its steps, by step phase that is not training (`checkpoint_s` ...)."""
    num_compiled_steps: int
    """Steps after the warm-up that compiled, which are excluded."""
    memory_peak_bytes: float
    memory_capacity_bytes: float | None
    """Memory of its smallest GPU; None without readings."""
    num_allocator_retries: int
    last_loss: float | None
    rank_hours: float
    """Ranks times hours of all steps of its attempts."""
    phase_shares: Mapping[str, float]
    """Share of the steps by phase of the training; one entry without phases."""
    settings: Mapping[str, str]
    """Its inputs as flat names: config, resources, packages, code."""
    exposed: ExposedCommunication | None = None
    """Communication in its profiled steps; None if no counted attempt was profiled."""
    share_held: float | None = None
    """Share of its requested cores that others kept busy during the steps, on the worst node; None
    without readings."""
    start_share: float | None = None
    """For a run without `token_stretches`: see `step_stretches.start_share`."""
    num_profiled_steps: int = 0
    """Steps after the warm-up that were profiled, or warmed up the profiler: also excluded."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Setting in which the two arms differ."""

    name: str
    first: tuple[str, ...]
    """Values in the runs of the arm, each once."""
    second: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two arms of runs, the second against the first."""

    first: tuple[RunMeasure, ...]
    second: tuple[RunMeasure, ...]
    tokens: Verdict | None
    """Verdict on real tokens per second; None if runs are too short, or counted none."""
    samples: Verdict | None
    cost_rank_hours: float | None
    """Cost of `more_runs` in both arms, at the mean of these runs."""
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    """Reasons against the claim, or limits of it."""
