"""What is compared, as plain values: PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_jobs.comparison.verdict import Verdict
from slurm_jobs.report.model.training import ExposedCommunication


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMeasure:
    """What the training of one run did, waits included; other things than training set apart."""

    run_id: str
    name: str
    stage: str
    num_ranks: int
    device: str
    """`cuda`, `cpu`; empty where the records do not say."""
    nodes: tuple[str, ...]
    cards: tuple[str, ...]
    """Names of the GPUs that its nodes' readings tell, each once, in order."""
    cpus: tuple[str, ...]
    """Models of its nodes' processors, each once, in order."""
    num_steps: int
    """That speeds are of: after the warm-up, without those that compiled or were profiled."""
    seconds: float
    """That they took, without what is set apart."""
    tokens_per_s: float
    """Real ones, of all ranks; 0 where none were counted."""
    samples_per_s: float
    samples_per_step: float
    """Of all ranks: the global batch."""
    tokens_per_sample: float
    token_stretches: tuple[float, ...]
    """Tokens/s of stretches of the run, in order; see `stretches`."""
    apart_s: Mapping[str, float]
    """By step phase that is no training (`checkpoint_s` ...): seconds over all its steps."""
    num_compiled_steps: int
    """Steps after the warm-up that compiled, which are left out as a whole."""
    memory_peak_bytes: float
    memory_capacity_bytes: float | None
    """Of the smallest of its cards; None where no reading says."""
    num_allocator_retries: int
    last_loss: float | None
    rank_hours: float
    """Ranks times hours of all steps of its attempts."""
    phase_shares: Mapping[str, float]
    """By phase of the training, its share of the steps; one entry where there are no phases."""
    settings: Mapping[str, str]
    """What it was made from, flat: config, resources, packages, code."""
    exposed: ExposedCommunication | None = None
    """Of its profiled steps; None where none of those that count were profiled."""
    share_held: float | None = None
    """Of the cores that it asked for on the node where that was most, how much processes of others
    kept busy during the steps; None where no readings tell."""
    start_share: float | None = None
    """Of a run without such stretches: see `stretches.start_share`."""
    num_profiled_steps: int = 0
    """Steps after the warm-up that were profiled, or warmed the profiler up: left out, too."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A setting that the two arms do not share."""

    name: str
    first: tuple[str, ...]
    """The values that the runs of the arm have, each once."""
    second: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two arms of runs, the second against the first."""

    first: tuple[RunMeasure, ...]
    second: tuple[RunMeasure, ...]
    tokens: Verdict | None
    """Of real tokens a second; None where runs are too short, or counted none."""
    samples: Verdict | None
    cost_rank_hours: float | None
    """What `more_runs` in both arms would take, at the mean of these runs."""
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    """What forbids or weakens the claim."""
