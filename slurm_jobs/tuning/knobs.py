"""Knobs for each finding of the report, and their new values.

A knob changes how a training runs, never what it learns: its key is one of `MAY_CHANGE`. Knobs
that would change that, or need another allocation, are named and not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.configs.train import MAY_CHANGE
from slurm_jobs.tuning.trial_model import Change, TrialFinding

LEARNED = "would change what is learned"
HARDWARE = "not on this hardware"
NO_KNOB = "no knob known"
PREFETCH = "num_prefetch_batches"

_MOST_THREADS_A_CORE = 4
"""Threads that wait for storage need no core; beyond this they queue up. Own choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """Hardware of the allocation."""

    device: str
    """`cuda` or `cpu`."""
    num_ranks: int
    cpus_per_task: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Change to try, or the reason why it is not tried."""

    cause: TrialFinding
    change: Change | None
    name: str
    """Name of the knob: `num_loader_threads: 4`, `cpus_per_task`."""
    why_not: str = ""
    """Empty where there is a change."""


@dataclass(frozen=True, slots=True)
class _NotTried:
    knob: str
    why: str


_Values = Mapping[str, Any]
_Knob = Callable[[_Values, Hardware], Change | _NotTried | None]
"""Returns a change, or what is not tried and why, or None if it does not apply."""


def propose(causes: Sequence[TrialFinding], train: _Values, hardware: Hardware) -> list[Proposal]:
    """Return the proposals of the findings, strongest finding first.

    Equally strong findings keep their order, and the proposals of one finding have the order of
    its knobs in `KNOBS`.

    Args:
        causes: findings to act on.
        train: the config with what was kept so far; all its keys.
        hardware: hardware of the allocation.
    """
    proposals: list[Proposal] = []
    for cause in by_strength(causes):
        knobs = KNOBS.get(f"{cause.rule}:{cause.kind}") or KNOBS.get(cause.rule, (_unknown,))
        for knob in knobs:
            match knob(train, hardware):
                case Change() as change:
                    assert change.key.partition(".")[0] in MAY_CHANGE, change.key
                    proposals.append(Proposal(cause=cause, change=change, name=change.text))
                case _NotTried(name, why):
                    proposals.append(Proposal(cause=cause, change=None, name=name, why_not=why))
    return proposals


def by_strength(causes: Sequence[TrialFinding]) -> list[TrialFinding]:
    """Sort by ceiling, highest first; causes without one come last, in their order."""
    return sorted(causes, key=lambda cause: -(cause.times or 0.0))


def _unknown(_train: _Values, _hardware: Hardware) -> _NotTried:
    return _NotTried("-", NO_KNOB)


def _loader_threads(train: _Values, hardware: Hardware) -> Change | _NotTried:
    doubled = 2 * int(train["num_loader_threads"])
    most = max(2, _MOST_THREADS_A_CORE * hardware.cpus_per_task)
    if doubled > most:
        return _NotTried(
            f"num_loader_threads: {doubled}",
            f"{HARDWARE}: more than {_MOST_THREADS_A_CORE} a core; ask for more cpus_per_task",
        )
    return Change(key="num_loader_threads", value=doubled)


def _prefetch(train: _Values, _hardware: Hardware) -> Change:
    """Read twice as many batches ahead.

    A full buffer alone makes no trial faster, because trials drop as many steps as either of the
    compared configs reads ahead.
    """
    return Change(key=PREFETCH, value=2 * int(train[PREFETCH]))


def _staging(train: _Values, _hardware: Hardware) -> Change | None:
    if train["staging"]["mode"] != "off" or train["reader"] != "index":
        return None
    return Change(key="staging.mode", value="beside")


def _compute_threads(train: _Values, hardware: Hardware) -> Change | None:
    """Leave cores to the loader: on a CPU the model shares them."""
    num_threads = train["num_compute_threads"] or hardware.cpus_per_task
    if hardware.device != "cpu" or num_threads < 2:
        return None
    return Change(key="num_compute_threads", value=num_threads // 2)


def _cores(_train: _Values, _hardware: Hardware) -> _NotTried:
    return _NotTried("cpus_per_task", "needs another allocation; set it and tune again")


def _decoding(_train: _Values, _hardware: Hardware) -> _NotTried:
    return _NotTried("smaller stored images (preprocess)", LEARNED)


def _fewer_microbatches(train: _Values, _hardware: Hardware) -> Change | None:
    number = train["num_microbatches"]
    if number == "auto" or number < 2 or number % 2:
        return None
    return Change(key="num_microbatches", value=number // 2)


def _more_microbatches(train: _Values, _hardware: Hardware) -> Change | None:
    number = train["num_microbatches"]
    if number == "auto":
        return None
    return Change(key="num_microbatches", value=2 * number)


def _compile(train: _Values, hardware: Hardware) -> Change | _NotTried | None:
    if train["compile"] is not None:
        return None
    if hardware.device == "cpu":
        return _NotTried("compile", f"{HARDWARE}: it is tried on GPUs alone")
    return Change(key="compile", value={})


def _recompute(train: _Values, _hardware: Hardware) -> Change | None:
    if train["activation_checkpointing"]:
        return None
    return Change(key="activation_checkpointing", value=True)


def _keep_activations(train: _Values, _hardware: Hardware) -> Change | None:
    if not train["activation_checkpointing"]:
        return None
    return Change(key="activation_checkpointing", value=False)


def _keep_gathered(train: _Values, _hardware: Hardware) -> Change | None:
    if train["strategy"] != "fsdp2" or not train["sharding"]["reshard_after_forward"]:
        return None
    return Change(key="sharding.reshard_after_forward", value=False)


def _gather_ahead(train: _Values, hardware: Hardware) -> Change | None:
    if train["strategy"] != "fsdp2" or hardware.device != "cuda":
        return None
    if train["sharding"]["forward_prefetch"]:  # it gathers ahead already
        return None
    return Change(key="sharding.forward_prefetch", value=1)


def _replicate(train: _Values, _hardware: Hardware) -> Change | None:
    if train["strategy"] != "fsdp2":
        return None
    return Change(key="strategy", value="ddp")


def _batching(_train: _Values, _hardware: Hardware) -> _NotTried:
    why = f"{LEARNED}: other samples share a global batch, or their order changes"
    return _NotTried("batching", why)


def _batch_size(_train: _Values, _hardware: Hardware) -> _NotTried:
    return _NotTried("global_batch_size", LEARNED)


KNOBS: Mapping[str, tuple[_Knob, ...]] = {
    "data-wait": (
        _loader_threads,
        _staging,
        _prefetch,
        _compute_threads,
        _cores,
        _decoding,
    ),
    "data-wait:threads": (_loader_threads, _prefetch, _cores),
    "data-wait:read-ahead": (_prefetch, _loader_threads),
    "data-wait:storage": (_staging, _loader_threads, _prefetch),
    "data-wait:cores": (_compute_threads, _cores, _decoding),
    "data-wait:decoding": (_cores, _decoding),
    "data-wait:lock": (_decoding,),
    "network-full": (_staging,),
    "meetings": (_replicate, _batch_size),
    "storage-queue": (_staging, _loader_threads),
    "gpu-use": (_fewer_microbatches, _compile, _prefetch),
    "gpu-fluctuates": (_prefetch, _loader_threads),
    "straggler": (_prefetch, _fewer_microbatches, _batching),
    "exposed-communication": (_keep_gathered, _gather_ahead, _replicate),
    "padding": (_batching,),
    "memory-pressure": (_more_microbatches, _recompute),
    "accumulation": (_fewer_microbatches,),
    "small-batch": (_batch_size,),
    "activation-checkpointing": (_keep_activations,),
}
"""Knobs by rule of the report without its stage, or by rule and cause where it distinguishes some.
`checkpoint` and `evaluation` never occur: trials do not save or evaluate."""
NOT_MEASURED = ("checkpoint", "evaluate")
"""Keys that trials cannot measure."""
