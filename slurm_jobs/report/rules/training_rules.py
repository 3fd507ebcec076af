"""Rules on the steps, the ranks and the devices of a training. PURE."""

from __future__ import annotations

from slurm_jobs.report.profile_trace import LAUNCHES, ON_DEVICES, PAGEABLE, SMALL_COPIES
from slurm_jobs.report.report_model import Check, Finding, Straggler, TrainingNumbers
from slurm_jobs.report.rules.base import (
    ON_CPUS,
    SHORT_RUN_S,
    abstain,
    ceiling,
    clear,
    phase_evidence,
    rule,
    share_of,
    times_without,
)
from slurm_jobs.report.rules.data_wait import CAUSE_TITLES, find_cause, foreign_load
from slurm_jobs.report.rules.node_rules import probe_evidence
from slurm_jobs.shared import units

# Unused device memory. These rules apply if twice the peak would fit into nine tenths of the GPU:
# doubling the batch can at most double the peak, because weights and optimizer state do not grow.


_ROOM = 0.45
"""Half of the 90 % that `num_microbatches: auto` fills."""
_RECOMPUTED = 0.25
"""Share of a step with activation checkpointing: one more forward pass in addition to a forward
pass and a backward pass of twice its work (Chen et al. 2016)."""
_ROOM_RULE = "twice the peak is within 90 % of the card's memory"


@rule("small-batch", f"{_ROOM_RULE}, and num_microbatches is 1")
def small_batch(numbers: TrainingNumbers) -> Finding | Check:
    """Find a single microbatch per step that could be twice as large."""
    if numbers.num_microbatches > 1:
        return clear("a step has several microbatches: see `accumulation`")
    return _no_room(numbers) or Finding(
        severity="note",
        title="a batch of twice the size would fit",
        text="A small batch does not fill the GPU.",
        evidence=(_memory_text(numbers),),
        next_knob="raise global_batch_size, if the training still converges (adjust the learning "
        "rate); or use fewer GPUs for the same batch",
        confidence="medium: the memory of a larger batch is an upper bound, not a measurement",
        ceiling="not known: depends on how busy a batch of this size keeps the GPU",
    )


@rule("accumulation", f"{_ROOM_RULE}, and num_microbatches is 2 or more")
def accumulation(numbers: TrainingNumbers) -> Finding | Check:
    """Find more microbatches than the memory requires."""
    if numbers.num_microbatches <= 1 and not numbers.too_few:
        return clear("each step is one microbatch")
    return _no_room(numbers) or Finding(
        title="half as many microbatches a step would fit",
        text="Each microbatch has its own kernel launches, and the GPU has room for larger ones. "
        "The number of microbatches does not change what the model learns.",
        evidence=(f"{numbers.num_microbatches} microbatches a step; {_memory_text(numbers)}",),
        next_knob="num_microbatches: auto finds the fewest that fit (if it is auto already, raise "
        "memory_share); or halve it",
        confidence="medium: the memory of a larger microbatch is an upper bound, not a measurement",
        ceiling="not known: depends on how busy a microbatch of this size keeps the GPU",
    )


@rule("activation-checkpointing", f"activation_checkpointing is on, and {_ROOM_RULE}")
def needless_checkpointing(numbers: TrainingNumbers) -> Finding | Check:
    """Find activation checkpointing that memory does not require."""
    if not numbers.activation_checkpointing:
        return clear("it is off: activations are stored, not recomputed")
    return _no_room(numbers) or Finding(
        severity="note",
        title="activations are recomputed although memory is free",
        text="Activation checkpointing saves memory and costs time; here memory is free.",
        evidence=(_memory_text(numbers),),
        next_knob="activation_checkpointing: false; the preflight reports in the job's first "
        "seconds whether it fits, and num_microbatches: auto finds what fits",
        confidence="low: the memory of stored activations is not known before it is tried",
        ceiling=ceiling(_RECOMPUTED, "no second forward pass"),
        ceiling_times=times_without(_RECOMPUTED),
    )


def _no_room(numbers: TrainingNumbers) -> Check | None:
    """Return the common answer if there is no memory to spare, or it is unknown."""
    peak, capacity = numbers.memory_peak_bytes, numbers.memory_capacity_bytes
    if numbers.device == "cpu":
        return clear(ON_CPUS)
    if numbers.too_few:
        return abstain(numbers.too_few)
    if capacity is None:
        return abstain("no reading of a node shows how much memory its GPUs have")
    if peak.value is None:
        return abstain(peak.missing)
    return None if peak.value <= _ROOM * capacity else clear(_memory_text(numbers))


def _memory_text(numbers: TrainingNumbers) -> str:
    peak, capacity = numbers.memory_peak_bytes, numbers.memory_capacity_bytes or 0.0
    share = units.percent((peak.value or 0.0) / capacity)
    return f"peak {units.quantity(peak)} of {units.num_bytes(capacity)}, {share} of the card"


# The device's activity in profiled steps; `slurm-jobs profile` shows the same steps one by one.


@rule("kernel-launches", LAUNCHES, gpus_only=True)
def kernel_launches(numbers: TrainingNumbers) -> Finding | Check:
    """Find kernels of which half are shorter than a launch, on a device that idles in between."""
    return _profiled("kernel-launches", numbers, "the host takes longer than the device")


@rule("pageable-copies", PAGEABLE, gpus_only=True)
def pageable_copies(numbers: TrainingNumbers) -> Finding | Check:
    """Find copies from or to memory that is not pinned: 1 % of the steps."""
    return _profiled("pageable-copies", numbers, "host and device wait for these copies")


@rule("small-copies", SMALL_COPIES, gpus_only=True)
def small_copies(numbers: TrainingNumbers) -> Finding | Check:
    """Find fifty copies a step of which four fifths are short."""
    return _profiled("small-copies", numbers, "starting a copy takes longer than the copy")


def _profiled(name: str, numbers: TrainingNumbers, why: str) -> Finding | Check:
    if numbers.profiled is None or numbers.profiled.wall_s <= 0:
        return abstain("no steps were profiled on a GPU (`profile: {steps: [20, 40]}`)")
    cause = ON_DEVICES[name](numbers.profiled)
    if cause is None:
        return clear(f"not in {units.number_of('profiled step', numbers.profiled.num_steps)}")
    return Finding(
        severity="high" if cause.share >= 0.20 else "medium",
        title=cause.title,
        text=f"In the steps that were profiled, {why}.",
        evidence=(cause.evidence,),
        next_knob=cause.next_knob,
        ceiling=cause.ceiling,
        confidence="medium: profiling slows a step down, small kernels most",
    )


# Ranks that wait for each other, or are far from their GPU.


_LIMIT = 0.05
_EXPOSED = 0.10
_SLOWEST = "In synchronous training every rank waits for the slowest in each step."
_HIDDEN = (
    "Only waits between the passes are timed separately; collectives inside forward and backward, "
    "and on GPUs the host's wait for the device, hide more: the result is a lower bound."
)
_MOST_NAMED = 4


@rule(
    "straggler",
    "own work of the slowest rank over the mean of all, or extra data wait, "
    "or time waiting for other ranks: 5 % or more",
    "own measurement: dealing packs by cost takes slowest over mean from 1.055 to 1.003",
    needs_steps=True,
)
def straggler(numbers: TrainingNumbers) -> Finding | Check:
    """Find the slowest rank. Equal work gives 1.003 slowest over mean, unplanned packs 1.055.

    The rule compares each rank's own work, its step without the waits for others, because
    the steps themselves take equally long on all ranks. A collective ends at the same moment
    on all ranks. So the rank that arrives last where the wait is timed was slow since the last
    collective: the right rank is named, and the delay is a lower bound.
    """
    worst = numbers.straggler
    if worst is None:
        return abstain(not_compared(numbers))
    excess = worst.data_excess_s / worst.step_mean_s if worst.step_mean_s > 0 else 0.0
    ratio = worst.slowest_over_mean
    evidence = _evidence(numbers, worst)
    confidence = "high: timed in the records"
    if isinstance(foreign_load(numbers), Finding):
        confidence = (
            "medium: timed in the records, but other processes used cores of the job meanwhile"
        )
    if ratio is not None and ratio >= 1 + _LIMIT:
        place = _place(worst.rank, worst.node)
        return Finding(
            title=f"{place} slows down the others, most in {worst.phase}",
            text=f"{_SLOWEST} {_HIDDEN}",
            evidence=(*evidence, *probe_evidence(numbers, worst.node)),
            next_knob=_slow_place(
                numbers, place, "device clock, other jobs, loader threads, storage"
            ),
            ceiling=_evened_out(ratio),
            ceiling_times=ratio,
            confidence=confidence,
        )
    if excess >= _LIMIT:
        place = _place(worst.data_rank, worst.data_node)
        return Finding(
            title=f"{place} slows down the others: it waits for its data",
            text=_SLOWEST,
            evidence=(*reversed(evidence), *probe_evidence(numbers, worst.data_node)),
            next_knob=_slow_place(numbers, place, "loader threads, storage, other jobs on it"),
            ceiling=ceiling(excess, f"rank {worst.data_rank} waiting no longer than the mean rank"),
            ceiling_times=times_without(excess),
            confidence=confidence,
        )
    if ratio is None:
        return abstain(
            "these step records of an older version do not time waits for other ranks separately"
        )
    waiting = share_of(numbers, "rank_wait")[0] - (numbers.meeting_share or 0.0)
    if waiting < _LIMIT:
        return clear(
            f"own work of the slowest rank over the mean: {ratio:.3f}, as far as waits are timed "
            "separately"
        )
    padding_share = numbers.padding_share.value
    return Finding(
        title=f"{units.percent(waiting)} of each step waits for slower ranks",
        text=f"No single rank is slow: a different one is last in each step. {_HIDDEN}",
        evidence=evidence,
        next_knob="batches already have equal lengths: check the nodes first (other jobs on them, "
        "fewer free cores than ranks and their threads), then try larger microbatches"
        if padding_share is not None and padding_share < _LIMIT
        else "batches of more equal length, or fewer and larger microbatches; "
        "if data wait differs too, more num_prefetch_batches",
        ceiling=_evened_out(times_without(waiting)),
        ceiling_times=times_without(waiting),
    )


def not_compared(numbers: TrainingNumbers) -> str:
    """Return why no straggler can be named."""
    if numbers.num_ranks < 2:
        return "there is only one rank"
    return "no attempt has step records of all its ranks"


def _place(rank: int, node: str) -> str:
    return f"rank {rank}" + (f" on {node}" if node else "")


def _evidence(numbers: TrainingNumbers, worst: Straggler) -> tuple[str, ...]:
    data = (
        f"rank {worst.data_rank} waits {units.seconds(worst.data_excess_s)} a step longer "
        "for its data than the mean rank"
    )
    if worst.slowest_over_mean is None:
        return (data,)
    share, mean_s = share_of(numbers, "rank_wait")
    meeting = numbers.meeting_share
    exchange = "" if meeting is None else f"; the exchange itself takes {units.percent(meeting)}"
    waits = f"a mean rank waits {units.seconds(mean_s)} a step for others, {units.percent(share)}"
    own_work = (
        f"own work of rank {worst.rank} over the mean of all: {worst.slowest_over_mean:.3f}, most "
        f"of it in {worst.phase} ({units.seconds(worst.phase_excess_s)} a step longer than the "
        "mean rank)"
    )
    return (own_work, f"{waits}{exchange}", data)


def _evened_out(factor: float | None) -> str:
    """Return the gain of even work by the timed waits: no ceiling, because others are not timed."""
    gain = "not known" if factor is None else f"about {factor:.2f} times the speed"
    return f"equal work in each step: {gain}; more where waits are hidden"


def _slow_place(numbers: TrainingNumbers, place: str, what: str) -> str:
    """Return what to check: the rank's node, unless all ranks are on that one."""
    nodes = {rank.node for rank in numbers.ranks}
    if len(nodes) == 1:
        return (
            f"all ranks are on {nodes.pop()}: check what only {place} uses there (its device and "
            "the nearest cores, its part of the data) and what else runs there (other jobs, "
            "fewer free cores than ranks and their threads)"
        )
    return f"check the node of {place} ({what}); exclude it with slurm.exclude if it stays slow"


@rule(
    "meetings",
    "exchanges between the passes, each timed on its last rank: together 5 % of the step or more",
    needs_steps=True,
)
def meetings(numbers: TrainingNumbers) -> Finding | Check:
    """Find exchanges between the passes that cost time even on the rank that arrives last."""
    share = numbers.meeting_share
    if max(numbers.rank_counts, default=1) == 1:
        return clear("there is only one rank")
    if share is None:
        return abstain("this needs records of all ranks that time waits for other ranks separately")
    if share < _LIMIT:
        return clear(f"{units.percent(share)} of the step, under 5 %")
    mean_s = share * sum(phase.seconds for phase in numbers.phases)
    if numbers.meetings_apart:
        on_rank = "in both exchanges together, each on the last rank, which did not wait"
        confidence = "high: each exchange is timed separately"
    else:
        on_rank = "on the rank that waits least, because it came last"
        confidence = (
            "medium: these records, of an older version, combine the two exchanges of a step; if "
            "different ranks are last in them, a part of it is a wait for slower ranks"
        )
    return Finding(
        title=f"{units.percent(share)} of each step is spent on exchanges of the ranks",
        text="Twice a step the ranks exchange a few numbers. The time for that does not depend on "
        "how much a step computes. Collectives within the passes have the same fixed cost, which "
        "is not timed separately.",
        evidence=(f"{units.seconds(mean_s)} a step {on_rank}",),
        next_knob="more work per step (global_batch_size, with a matching learning rate); a free "
        "core on each node for the communication threads; fewer ranks",
        ceiling=f"{ceiling(share, 'no time in these exchanges')}; more if collectives within "
        "the passes become fewer, too",
        ceiling_times=times_without(share),
        confidence=confidence,
    )


_NEARER_CORES = (
    "cores near the GPUs: request whole nodes with all cores (cpus_per_task, `slurm: {exclusive: "
    "true}`); or, for a part of a node, `slurm: {gres-flags: enforce-binding}`, if the site's "
    "gres.conf says which cores are near which GPU"
)
_OTHER_ORDER = (
    "GPUs in the order of their sockets, because other ranks have the cores near these: remove "
    "`distribution` under `slurm:`, or set CUDA_VISIBLE_DEVICES in `setup:`"
)


@rule(
    "far-from-gpu",
    "a rank has none of the cores of its GPU's NUMA node",
    "PyTorch, NUMA binding: typically 1 to 10 % of performance",
    gpus_only=True,
)
def far_from_gpu(numbers: TrainingNumbers) -> Finding | Check:
    """Find ranks far from their GPU. gres.conf(5): only enforce-binding ties cores to GPUs."""
    far = numbers.far_ranks
    if far is None:
        return abstain(
            "no record says which cores are near the GPUs (older version, or no NUMA nodes)"
        )
    if not far:
        return clear("each rank has cores near its GPU")
    evidence = [
        f"{_place(each.rank, each.node)} has cores {each.cores}, and its GPU is near cores "
        f"{each.near_cores}"
        for each in far[:_MOST_NAMED]
    ]
    if len(far) > _MOST_NAMED:
        evidence.append(f"and {units.number_of('more rank', len(far) - _MOST_NAMED)}")
    knobs = {_OTHER_ORDER if each.others_are_near else _NEARER_CORES: None for each in far}
    return Finding(
        title="1 rank runs far from its GPU"
        if len(far) == 1
        else f"{len(far)} ranks run far from their GPUs",
        text="Copies to this GPU and kernel launches cross to another NUMA node.",
        evidence=tuple(evidence),
        next_knob="; ".join(knobs),
        ceiling="typically 1 to 10 % (PyTorch's documentation); not known for this training",
        confidence="high that they are far; the cost is not timed separately",
    )


@rule(
    "exposed-communication",
    "exposed communication of 10 % of the profiled steps or more (20 %: high)",
    "PyTorch's profiler, its panel of bottlenecks",
)
def exposed_communication(numbers: TrainingNumbers) -> Finding | Check:
    """Find exposed communication. PyTorch's profiler: 10 % of the step or more is a bottleneck."""
    exposed = numbers.exposed
    if max(numbers.rank_counts, default=1) == 1:
        return clear("there is only one rank")
    if exposed is None:
        return abstain("no steps were profiled (`profile: {steps: [20, 40]}`)")
    share = units.percent(exposed.share)
    if exposed.share < _EXPOSED:
        return clear(f"{share} of the time in profiled steps is communication without computation")
    return Finding(
        severity="high" if exposed.share >= 2 * _EXPOSED else "medium",
        title=f"{share} of the profiled steps is exposed communication",
        text="Collectives that do not overlap with computation cost their whole time, including "
        "the wait for the slowest rank.",
        evidence=(
            (
                f"rank {exposed.rank}, over {units.number_of('profiled step', exposed.num_steps)}: "
                f"communication {units.percent(exposed.communication_share)}, exposed {share}"
            ),
        ),
        next_knob="the straggler first, if one is named; then sharding.reshard_after_forward: "
        "false, replicas across nodes, or strategy: ddp if the whole model fits on a device; "
        "`slurm-jobs profile` shows each step",
        ceiling=ceiling(exposed.share, "no exposed communication"),
        ceiling_times=times_without(exposed.share),
        confidence="medium: profiling slows a step down, small operators most",
    )


# The time of training steps.


_TRIGGERS = ("every_min", "every_steps")
"""Keys of the config's `checkpoint` that save a state before the end."""
_CHECKPOINT_LIMIT, _EVALUATION_LIMIT = 0.05, 0.10
_AROUND = frozenset({"startup", "unexplained", "between"})
"""Parts of the attempts' time outside the steps."""


@rule(
    "data-wait",
    "data wait below 5 % of the step is fine, up to 20 % moderate, above that high",
    "XProf, input-pipeline analysis",
    needs_steps=True,
)
def data_wait(numbers: TrainingNumbers) -> Finding | Check:
    """Find waits for data. XProf: < 5 % of the step is fine, to 20 % moderate, then high."""
    share, _ = share_of(numbers, "data_wait")
    if share < 0.05:
        return clear(f"{units.percent(share)} of the step waits for data, under 5 %")
    cause = find_cause(numbers)
    because = f": {CAUSE_TITLES[cause.kind]}" if cause.kind else ""
    critical = numbers.critical_shares.get("data_wait")
    degree = "highly" if share >= 0.20 else "moderately"
    return Finding(
        severity="high" if share >= 0.20 else "medium",
        title=f"{units.percent(share)} of each step waits for data{because}",
        text=f"The training is {degree} input-bound: the ranks wait for the loader. "
        f"{cause.text}".rstrip(),
        evidence=(*phase_evidence(numbers, "data_wait"), *cause.evidence),
        next_knob=cause.next_knob,
        ceiling=ceiling(critical, "no data wait"),
        ceiling_times=times_without(critical),
        confidence=cause.confidence,
        cause=cause.kind,
    )


@rule(
    "padding",
    "padding of 5 % or more of the token slots (20 %: high)",
    "own measurement on 65,536 items: greedy packing 11 %, best-fit (1,024 items) 1.5 %",
)
def padding(numbers: TrainingNumbers) -> Finding | Check:
    """Find padding of 5 % or more: best-fit packing leaves 1.5 %, greedy packing 11 %."""
    share = numbers.padding_share.value
    if share is None:
        return abstain(numbers.padding_share.missing)
    if numbers.too_few:
        return abstain(numbers.too_few)
    if share < 0.05:
        return clear(f"{units.percent(share)} of the token slots are padding")
    critical = numbers.critical_shares.get("padding")
    return Finding(
        severity="high" if share >= 0.20 else "medium",
        title=f"{units.percent(share)} of the tokens computed are padding",
        text="The devices compute on tokens from which the model learns nothing.",
        evidence=(
            (
                f"{units.quantity(numbers.num_tokens)} are real; "
                f"padding takes {units.percent(share)} of all token slots"
            ),
        ),
        next_knob="run `slurm-jobs packing`, which compares the ways of batching on this data; "
        "then set batching.kind (packed, grouped) or batching.max_tokens",
        ceiling=ceiling(critical, "no padding, if a padded token costs as much as a real one"),
        ceiling_times=times_without(critical),
    )


def _stall(numbers: TrainingNumbers, kind: str, limit: float, knob: str) -> Finding | Check:
    if numbers.too_few:
        return abstain(numbers.too_few)
    share, _ = share_of(numbers, kind)
    if share < limit:
        return clear(f"{units.percent(share)} of the step time")
    critical = numbers.critical_shares.get(kind)
    return Finding(
        severity="high" if share >= 0.20 else "medium",
        title=f"{kind} takes {units.percent(share)} of the training time",
        text=f"The ranks are idle during {kind}.",
        evidence=phase_evidence(numbers, kind),
        next_knob=knob,
        ceiling=ceiling(critical, f"no time in {kind}"),
        ceiling_times=times_without(critical),
    )


@rule(
    "checkpoint",
    f"checkpoint takes {units.percent(_CHECKPOINT_LIMIT)} of the step time or more",
)
def checkpoint_stall(numbers: TrainingNumbers) -> Finding | Check:
    """Find checkpoints that take 5 % of the step time; a short training may save at its end."""
    if numbers.saves_ahead:
        # The advice depends on how the stage saves now; if that is unknown, it names everything.
        now = numbers.checkpoint
        mode = {"async": "", "sync": "checkpoint.mode: async; or "}.get(
            now.get("mode", ""), "checkpoint.mode: async, if it is sync; or "
        )
        given = [f"checkpoint.{n} (now {now[n]:g})" for n in _TRIGGERS if now.get(n) is not None]
        names = given or [f"checkpoint.{name}" for name in _TRIGGERS]
        first = ", whichever comes first" if len(names) > 1 else ""
        knob = (
            f"{mode}save less often: raise {' and '.join(names)}{first} (a kill then loses more "
            "work)"
        )
        return _stall(numbers, "checkpoint", _CHECKPOINT_LIMIT, knob)
    if sum(phase.seconds for phase in numbers.phases) * numbers.num_measured < SHORT_RUN_S:
        return clear(
            "all checkpoints were saved at the end; their share is large only in so short a "
            "training"
        )
    knob = (
        "no setting helps: all checkpoints were saved at an end (of the training, of a phase, or "
        "at a stop), which is always done; in a longer training their share is smaller, and a "
        "faster file system shortens them"
    )
    return _stall(numbers, "checkpoint", _CHECKPOINT_LIMIT, knob)


@rule(
    "evaluation",
    f"evaluation takes {units.percent(_EVALUATION_LIMIT)} of the step time or more",
)
def evaluation_stall(numbers: TrainingNumbers) -> Finding | Check:
    """Find evaluation that takes 10 % of the step time."""
    knob = (
        "evaluate less often, or on fewer samples: raise evaluate.every_steps, or lower "
        "evaluate.num_loss_samples and evaluate.num_answers (answers cost most)"
    )
    return _stall(numbers, "evaluation", _EVALUATION_LIMIT, knob)


@rule("repeated-steps", "repeated steps are 5 % of all recorded steps or more")
def repeated_steps(numbers: TrainingNumbers) -> Finding | Check:
    """Find steps repeated after a stop: 5 % of all recorded steps."""
    num_repeated = numbers.num_repeated_steps
    if not num_repeated:
        return clear("no step was done twice")
    if numbers.too_few:
        return abstain(numbers.too_few)
    total = numbers.num_steps + num_repeated
    share = num_repeated / total
    if share < 0.05:
        return clear(f"{num_repeated} of {total:,} steps were done twice")
    knob = "give the job more time to save before its time limit (signal_lead_s)"
    saving, _ = share_of(numbers, "checkpoint")
    if saving < _CHECKPOINT_LIMIT:
        knob = f"save more often (checkpoint.every_min or every_steps), or {knob}"
    else:  # then `checkpoint_stall` advises saving less often
        knob += (
            "; saving more often would cost more: checkpoints already take "
            f"{units.percent(saving)} of the step time"
        )
    steps_s = sum(s.seconds for s in numbers.budget if s.kind not in _AROUND)
    # Repeated steps may be longer or shorter than others.
    share_of_time = min(1.0, numbers.repeated_s / steps_s) if steps_s > 0 else 0.0
    return Finding(
        title=f"{num_repeated:,} steps were done twice",
        text="An attempt ended some steps after its last checkpoint; the next one repeated them.",
        evidence=(
            (
                f"{units.seconds(numbers.repeated_s)}, {units.percent(share)} of all steps, "
                f"over {units.number_of('attempt', numbers.num_attempts)}"
            ),
        ),
        next_knob=knob,
        ceiling=ceiling(max(share, share_of_time), "no repeated steps"),
    )


@rule("memory-pressure", "more than 0 allocator retries", "DeepSpeed, memory-pressure warning")
def allocator_retries(numbers: TrainingNumbers) -> Finding | Check:
    """Find allocator retries. DeepSpeed: any retry means memory pressure."""
    if not numbers.num_allocator_retries:
        return clear("no allocator retries")
    return Finding(
        title="the device's memory is nearly full",
        text="The allocator had to flush its cache and retry, which stalls the device.",
        evidence=(
            (
                f"{numbers.num_allocator_retries:,} allocator retries; "
                f"peak {units.quantity(numbers.memory_peak_bytes)}"
            ),
        ),
        next_knob="a smaller microbatch, or activation checkpointing",
        ceiling="not known: retries are not timed separately",
    )


@rule("around-the-steps", "time outside the steps is a quarter of the attempts' time or more")
def around_steps(numbers: TrainingNumbers) -> Finding | Check:
    """Find attempts that spend a quarter of their time outside the training steps."""
    outside = [s for s in numbers.budget if s.kind in _AROUND]
    share = sum(s.share for s in outside)
    whole_s = sum(s.seconds for s in numbers.budget)
    if whole_s < SHORT_RUN_S:
        return abstain(f"the attempts took {units.seconds(whole_s)} in all, under 300 s")
    if share < 0.25:
        return clear(f"{units.percent(share)} of the attempts' time is outside the steps")
    largest = sorted(outside, key=lambda s: -s.seconds)[:3]
    return Finding(
        severity="medium" if share >= 0.5 else "note",
        title=f"{units.percent(share)} of the attempts' time is outside the steps",
        text="Start-up, staging, export and evaluation take a larger share of jobs that are short "
        "or stop often.",
        evidence=tuple(
            f"{s.name}: {units.seconds(s.seconds)}, {units.percent(s.share)}" for s in largest
        ),
        next_knob=f"shorten {largest[0].name}; fewer and longer attempts spread it over more steps",
        ceiling=ceiling(share, "only steps"),
    )


@rule("unexplained", "unexplained time is 10 % of the step or more", needs_steps=True)
def unexplained_time(numbers: TrainingNumbers) -> Finding | Check:
    """Find time of 10 % of the step that no phase explains."""
    share, _ = share_of(numbers, "unexplained")
    if share < 0.10:
        return clear(f"{units.percent(share)} of the step is unexplained")
    return Finding(
        severity="note",
        title=f"{units.percent(share)} of each step is unexplained",
        text="No timed phase covers this time of the host; the other shares are lower bounds.",
        evidence=phase_evidence(numbers, "unexplained"),
        next_knob="a profile of a few steps (`profile: {steps: [20, 40]}`) shows what runs between "
        "the phases",
        ceiling="not known: its cause is unknown",
    )
