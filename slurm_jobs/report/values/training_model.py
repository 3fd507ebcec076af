"""Numbers of one training as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.base.quantities import Quantity, TimeShare
from slurm_jobs.report.profiles.occupancy import Occupancy
from slurm_jobs.report.values.load_model import LoaderLoad, NodeLoad, NodeProbes
from slurm_jobs.report.values.rank_model import FarRank, RankNumbers, Straggler


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
    """Communication without concurrent computation, on the rank with the most of it."""

    rank: int
    attempt: int
    num_steps: int
    """Number of profiled steps."""
    share: float
    """Share of the profiled steps."""
    communication_share: float
    """Share with at least one collective under way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPace:
    """Time of a step from start to start, from stretches of the run."""

    num_ranks: int
    """Ranks of the newest attempt; the pace is of attempts with the same number."""
    step_s: float
    """Mean over the stretches, including checkpoints and evaluation in the loop."""
    spread_s: float
    """Standard deviation of the stretches' means."""
    num_steps: int
    """Steps in the stretches."""
    num_stretches: int
    samples_per_step: float
    """Sum over all ranks."""
    num_planned: int | None
    """Steps of the whole training; None if the records lack it."""
    num_done: int
    """Steps finished by the newest attempt, including those without records."""
    num_saved: int
    """Steps in the newest checkpoint, as far as recorded."""
    num_phases: int
    is_last_phase: bool
    """False if phases with an unknown pace follow."""
    attempt: int = 0
    """Newest attempt with steps; 0 if unknown."""
    warmup_s: float = 0.0
    """Extra time of a start's warm-up steps, including compilation: the median over the attempts.
    """
    num_loaded: int | None = None
    """Steps in the checkpoint from which a later start without a step continued."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossOfManifest:
    """Loss of one manifest of a mixed data set: means over its targets, in nats per token."""

    name: str
    num_targets: int
    """Learned tokens in the steps that count."""
    first_loss: float | None
    """Over the first tenth of the steps; None if they have none of its targets."""
    last_loss: float | None
    """Over the last tenth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingNumbers:
    """Numbers from the step records of one stage."""

    stage: str
    num_ranks: int
    """Ranks of the largest attempt."""
    rank_counts: tuple[int, ...]
    """Ranks of the attempts whose steps count, in order, without repetitions."""
    rates_by_ranks: tuple[RankCountRates, ...]
    """Rates by number of ranks, if attempts differ; otherwise empty: all other rates have that
    number."""
    num_attempts: int
    num_steps: int
    """Repeated ones count once."""
    num_measured: int
    """Steps after the warm-up of each attempt."""
    warmup_steps: int
    too_few: str
    """Reason why no judgement is made; empty if there are enough steps."""
    phases: tuple[TimeShare, ...]
    """Seconds of a mean step, over all ranks."""
    critical_shares: Mapping[str, float]
    """Upper bound, by step phase and for `padding`, of the share of the steps' time on the critical
    path. In each step that is the time of the rank that spends most on it. Empty if no attempt has
    the records of all its ranks."""
    meeting_share: float | None
    """Share of the steps' time that the exchanges between the passes cost themselves, a part of the
    waits for other ranks. None if unknown."""
    meetings_apart: bool
    """True if each of the two exchanges is timed; older records combine them."""
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
    """Loss of the first step that counts."""
    last_loss: Quantity
    """Mean over the last `num_last_losses` steps: one step's loss says little."""
    num_last_losses: int
    manifest_losses: tuple[LossOfManifest, ...]
    """By manifest of the data set; empty if it was not mixed, or if levels are learned."""
    memory_peak_bytes: Quantity
    num_allocator_retries: int
    """Sum over ranks and attempts; each counts from its start."""
    straggler: Straggler | None
    num_repeated_steps: int
    repeated_s: float
    """Wall seconds spent on steps that a later attempt repeated."""
    num_abandoned_steps: int
    """Steps of an earlier config or code that no later attempt continued: not repeated."""
    abandoned_s: float
    budget: tuple[TimeShare, ...]
    """Rank 0 from the start of each attempt to its end: start-up, steps, the rest."""
    curves: Curves | None
    notes: tuple[str, ...] = ()
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    """`mode`, `every_min` and `every_steps` in the spec; empty if it has none."""
    saves_ahead: bool = True
    """True if the state was saved before the last step of an attempt, or of a phase."""
    has_device_times: bool = False
    """True if steps have device times in addition to the host's."""
    device_timeline: tuple[TimeShare, ...] = ()
    """Mean step by the device's clock; empty if it was not read. Never added to host time."""
    loads: tuple[NodeLoad, ...] = ()
    """Load of its nodes during the measured steps; empty without readings."""
    loader: LoaderLoad | None = None
    """Loader of the rank that waits longest for its data; None if not recorded."""
    probes: NodeProbes | None = None
    """Probes of its nodes, each compared with similar ones."""
    memory_capacity_bytes: float | None = None
    """Memory of the smallest GPU; None without readings."""
    exposed: ExposedCommunication | None = None
    """None if no rank of the newest profiled attempt recorded it."""
    profiled: Occupancy | None = None
    """Device activity in the profiled steps; None without a profile."""
    far_ranks: tuple[FarRank, ...] | None = None
    """Ranks of the newest attempt far from their GPU; None if not recorded."""
    device: str = ""
    """`cuda`, `cpu`; empty if not recorded."""
    num_loader_threads: int | None = None
    """Number for each rank in the newest config of a `run: train`."""
    num_microbatches: int = 1
    """Usual number per step on each rank."""
    activation_checkpointing: bool = False
    """Value in the newest config of a `run: train`."""
    pace: StepPace | None = None
    """None if there are too few steps."""
    start_s: float = 0.0
    """Time of a start before its first step and after its last: the median over attempts with
    steps, without unexplained time after their steps."""
    is_earlier: bool = False
    """True if all steps are of an earlier config, code or plan than the newest job's: their time
    counts, their loss is no result."""

    def phase(self, kind: str) -> TimeShare:
        """Return a step phase of the mean step; without measured steps it takes no time."""
        for phase in self.phases:
            if phase.kind == kind:
                return phase
        return TimeShare(name=kind, kind=kind, seconds=0.0, share=0.0)
