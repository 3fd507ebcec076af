"""What a report says of one training, as plain values: see `model`. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.profiles.occupancy import Occupancy
from slurm_jobs.report.model.load import LoaderLoad, NodeLoad
from slurm_jobs.report.model.probes import NodeProbes
from slurm_jobs.report.model.values import Quantity, TimeShare


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNumbers:
    """One rank on one node: a rank that ran on several, in several attempts, is there for each."""

    rank: int
    node: str
    num_steps: int
    """Measured steps that the means are of."""
    step_mean_s: float
    step_p95_s: float
    own_mean_s: float
    """Of the mean step, what is no wait for other ranks as far as such waits are timed apart."""
    own_excess_s: float | None
    """Own work a step over the mean of all ranks in the same attempts; None if none of these has
    the records of all its ranks."""
    data_excess_s: float | None
    """The same of the wait for data."""
    core_wait_mean_s: float | None
    """Of the mean step, how long the thread that makes the steps was ready to compute while others
    had the cores; None where the records do not tell."""
    phases_s: Mapping[str, float]
    """Mean seconds a step by step phase; adds up to `step_mean_s`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """The rank with the most work of its own, and the one that waits longest for its data.

    The steps of all ranks take the same time, because they wait for each other:
    what tells them apart is their own work, the step without those waits. Each
    is compared with the mean of its own attempt; the numbers are over the steps
    of all attempts that have the records of all their ranks.
    """

    rank: int
    node: str
    """Where it was slow; several are joined by commas and `and`."""
    slowest_over_mean: float | None
    """Own work of the slowest rank where it was slow, and of the mean rank elsewhere, over that of
    the mean rank throughout. A lower bound, because waits inside
    forward and backward are not timed apart; None where the records time none apart."""
    phase: str
    """The step phase in which `rank` exceeds the mean rank most."""
    phase_excess_s: float
    """By how much, seconds a step."""
    data_rank: int
    data_node: str
    data_excess_s: float
    """How much longer than the mean rank `data_rank` waits for its data, seconds a step."""
    step_mean_s: float
    """The mean step that these are parts of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FarRank:
    """A rank that has no core near its GPU."""

    rank: int
    node: str
    cores: str
    """That it may use, as Slurm writes them: `0-15`."""
    near_cores: str
    """Of the NUMA node that its GPU is at."""
    others_are_near: bool
    """Whether other ranks have cores there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Downsampled series over the optimizer steps; all of the same length."""

    step: tuple[float, ...]
    loss: tuple[float, ...]
    """Mean over the steps of each point."""
    tokens_per_s: tuple[float, ...]
    step_p50_s: tuple[float, ...]
    step_p95_s: tuple[float, ...]
    step_max_s: tuple[float, ...]
    data_wait_share: tuple[float, ...]
    resumed_at: tuple[int, ...]
    """First step of each attempt but the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCountRates:
    """Rates of the measured steps that so many ranks made together."""

    num_ranks: int
    num_steps: int
    step_median_s: Quantity
    steps_per_s: Quantity
    tokens_per_s: Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class ExposedCommunication:
    """Communication beside which nothing was computed, on the rank that had most of it."""

    rank: int
    attempt: int
    num_steps: int
    """That were profiled."""
    share: float
    """Of the profiled steps."""
    communication_share: float
    """At least one collective was under way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How long a step takes from start to start, from stretches of the run."""

    num_ranks: int
    """Of the newest attempt; the pace is of attempts that had as many."""
    step_s: float
    """Mean over the stretches, checkpoints and evaluation in the loop included."""
    spread_s: float
    """Standard deviation of the stretches' means."""
    num_steps: int
    """That the stretches are of."""
    num_stretches: int
    samples_per_step: float
    """Of all ranks."""
    num_planned: int | None
    """Steps that the whole training is to have; None where the records do not say."""
    num_done: int
    """Steps that the newest attempt had behind it, whether or not all have records."""
    num_saved: int
    """Steps that the newest checkpoint has, as far as the records tell."""
    num_phases: int
    is_last_phase: bool
    """Else phases are ahead whose pace nobody knows."""
    attempt: int = 0
    """The newest that made steps; 0 where that is not known."""
    warmup_s: float = 0.0
    """What the steps of a start's warm-up take beyond as many steps at this pace, compiling
    included: the median over the attempts."""
    num_loaded: int | None = None
    """Steps in the checkpoint that a start after that attempt went on from, without a step yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingNumbers:
    """What the step records of one stage amount to."""

    stage: str
    num_ranks: int
    """Of the attempt that had most."""
    rank_counts: tuple[int, ...]
    """Of the attempts whose steps count, in order; the same number twice in a row is told once."""
    rates_by_ranks: tuple[RankCountRates, ...]
    """By number of ranks, where attempts had different ones; else empty: then all other rates are
    of that number."""
    num_attempts: int
    num_steps: int
    """Repeated ones count once."""
    num_measured: int
    """Steps left after the warm-up of each attempt."""
    warmup_steps: int
    too_few: str
    """Why no judgement is made; empty if there are enough steps."""
    phases: tuple[TimeShare, ...]
    """Seconds of a mean step, over all ranks."""
    critical_shares: Mapping[str, float]
    """By step phase, and for `padding`: which share of the steps' time could be on their critical
    path, at most. In each step that is the time of the rank that spends most on it. Empty if no
    attempt has the records of all its ranks."""
    meeting_share: float | None
    """Of the steps' time, what the exchanges of the ranks between the passes take by themselves, a
    part of the waits for other ranks. None where it is not known."""
    meetings_apart: bool
    """Whether that is the price of each of the two exchanges; older records tell both together."""
    ranks: tuple[RankNumbers, ...]
    step_median_s: Quantity
    step_p95_s: Quantity
    steps_per_s: Quantity
    samples_per_s: Quantity
    tokens_per_s: Quantity
    padding_share: Quantity
    num_tokens: Quantity
    num_samples: Quantity
    first_loss: Quantity
    """Of the first step that counts."""
    last_loss: Quantity
    """Mean over the last `num_last_losses` steps: one step's loss says little."""
    num_last_losses: int
    memory_peak_bytes: Quantity
    num_allocator_retries: int
    """Over all ranks and attempts; each counts from its own start."""
    straggler: Straggler | None
    num_repeated_steps: int
    repeated_s: float
    """Wall seconds spent on steps that a later attempt did again."""
    num_abandoned_steps: int
    """Of an earlier config or code, from which no later attempt went on: not repeated."""
    abandoned_s: float
    budget: tuple[TimeShare, ...]
    """Rank 0 from the start of each attempt to its end: start-up, steps, the rest."""
    curves: Curves | None
    notes: tuple[str, ...] = ()
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    """`mode`, `every_min` and `every_steps` as the spec has them; empty where it does not say."""
    saves_ahead: bool = True
    """Whether the state was saved before the last step of an attempt, or of a phase."""
    has_device_times: bool = False
    """Whether steps have their time on the device beside the host's."""
    device_timeline: tuple[TimeShare, ...] = ()
    """A mean step by the device's own clock; empty where it was not read. Never added to host
    time."""
    loads: tuple[NodeLoad, ...] = ()
    """Of its nodes during the measured steps; empty without readings."""
    loader: LoaderLoad | None = None
    """Of the rank that waits longest for its data; None where no record tells."""
    probes: NodeProbes | None = None
    """Of its nodes, each beside its like."""
    memory_capacity_bytes: float | None = None
    """Of the smallest GPU; None where no reading tells."""
    exposed: ExposedCommunication | None = None
    """None where no rank of the newest profiled attempt told it."""
    profiled: Occupancy | None = None
    """What a device did in the steps that were profiled; None where none was."""
    far_ranks: tuple[FarRank, ...] | None = None
    """Of the newest attempt, those that run far from their GPU; None where no record says."""
    device: str = ""
    """`cuda`, `cpu`; empty where the records do not say."""
    num_loader_threads: int | None = None
    """Of each rank, as the newest config of a `run: train` has it."""
    num_microbatches: int = 1
    """Of a step on each rank, the usual number."""
    activation_checkpointing: bool = False
    """As the newest config of a `run: train` has it."""
    pace: Pace | None = None
    """None where too few steps tell it."""
    start_s: float = 0.0
    """What a start takes before its first step and after its last: the median over the attempts
    that reached a step, without what no span explains after their steps."""
    is_earlier: bool = False
    """All steps are of an earlier config, code or plan than the newest job's: their time counts,
    their loss is no result."""
