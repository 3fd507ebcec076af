"""Device times in step records, in words. PURE.

Device time is shown next to host time and never added to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.formats.timings.step_records import DEVICE_PHASES, NOT_TRAINING
from slurm_jobs.report.numbers.trainings.rank_numbers import phase_name
from slurm_jobs.report.steps.attempt_steps import AttemptSteps

NOT_RECORDED = "device timeline (busy, idle, communicating): not recorded"


def device_notes(attempts: Sequence[AttemptSteps]) -> tuple[str, ...]:
    """Return for each attempt how it was timed, and its mean device step if recorded."""
    notes: list[str] = []
    for attempt in attempts:
        name = f"attempt {attempt.attempt}"
        if any(timing.header.get("timing") == "sync" for timing in attempt.ranks):
            notes.append(
                f"{name}: timed with `timing: sync`, the host waiting for the device at each step "
                "phase: its steps are slower than without, its phases not comparable with those "
                "of other attempts"
            )
        if step_s := _mean(attempt, "device_step_s"):
            shares = {n: _mean(attempt, f"device_{n}") / step_s for n in DEVICE_PHASES}
            rest = max(0.0, 1 - sum(shares.values()))
            listed = ", ".join(
                f"{phase_name(n.removesuffix('_s'))} {units.percent(s)}" for n, s in shares.items()
            )
            notes.append(
                f"{name}: on the device a mean step takes {units.seconds(step_s)}: {listed}, "
                f"the rest {units.percent(rest)}; it is idle during waits"
            )
        if mfu := _mean_mfu(attempt):
            notes.append(
                f"{name}: MFU {units.percent(mfu)}: operations over what the cards could have done "
                "in all ranks' measured steps, without checkpoints, evaluation and compilation"
            )
    return tuple(notes)


_TIMELINE = (
    ("computing", "forward", ("forward", "backward", "optimizer")),
    ("copying from the host", "host_to_device", ("host_to_device",)),
    ("waiting for other ranks", "rank_wait", ("rank_wait",)),
    ("idle, waiting for data", "data_wait", ("data_wait",)),
)
"""Name, colour and step phases of the parts of a device's step."""


def device_timeline(attempts: Sequence[AttemptSteps]) -> tuple[TimeShare, ...]:
    """Return a mean step on the device, over the measured steps of all ranks with device times.

    Collectives within the passes overlap with computation or are part of it, and are not separable
    here; a profile (`profile.steps`) separates them.
    """
    measured = [a.measured(i) for a in attempts for i in range(len(a.ranks))]
    is_timed = [np.isfinite(steps["device_step_s"]) for steps in measured]
    num_steps = sum(int(timed.sum()) for timed in is_timed)
    if not num_steps:
        return ()

    def mean(field: str) -> float:
        """Return the mean over the timed steps; missing values count as 0."""
        pairs = zip(measured, is_timed, strict=True)
        sums = (np.nansum(steps[field][timed], dtype=np.float64) for steps, timed in pairs)
        return float(sum(sums)) / num_steps

    whole_s = mean("device_step_s")
    seconds = {
        (name, kind): sum(mean(f"device_{phase}_s") for phase in phases)
        for name, kind, phases in _TIMELINE
    }
    rest_s = max(0.0, whole_s - sum(seconds.values()))
    seconds["idle otherwise: checkpoints, evaluation, the host", "idle"] = rest_s
    return tuple(
        TimeShare(name=name, kind=kind, seconds=s, share=s / whole_s if whole_s else 0.0)
        for (name, kind), s in seconds.items()
    )


def has_device_times(attempts: Sequence[AttemptSteps]) -> bool:
    """Check whether any step of any rank has device times."""
    return any(np.isfinite(r["device_step_s"]).any() for a in attempts for r in a.records)


def _mean_mfu(attempt: AttemptSteps) -> float:
    """Return the time-weighted mean over the measured steps of all ranks."""
    operations = trained = 0.0
    for index in range(len(attempt.ranks)):
        steps = attempt.measured(index)
        known = np.isfinite(steps["mfu"])
        trained_s = steps["step_s"][known].astype(np.float64)
        trained_s -= sum(steps[name][known] for name in NOT_TRAINING)
        operations += float((steps["mfu"][known] * trained_s).sum())
        trained += float(trained_s.sum())
    return operations / trained if trained > 0 else 0.0


def _mean(attempt: AttemptSteps, field: str) -> float:
    """Return the mean over the measured steps of all ranks that have it; 0 if none has."""
    values = np.concatenate([attempt.measured(i)[field] for i in range(len(attempt.ranks))])
    values = values[np.isfinite(values)]
    return float(values.mean(dtype=np.float64)) if len(values) else 0.0
