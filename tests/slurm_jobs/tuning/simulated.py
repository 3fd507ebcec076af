"""A cluster made of arithmetic: what trials would measure, so that whole tunings can be simulated.

A fake: the search is pure, and asks for nothing but numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from slurm_jobs.formats.configs.command_stages import TuneConfig
from slurm_jobs.tuning.knobs import Hardware
from slurm_jobs.tuning.search import progress_of
from slurm_jobs.tuning.trial_config import base_config
from slurm_jobs.tuning.trial_model import Ask, Trial, TrialFinding
from slurm_jobs.tuning.tuning_progress import Facts, TuningProgress

DATA_WAIT = TrialFinding(
    rule="data-wait", title="40 % waits", ceiling="at most 1.67 times", times=1.67
)
PADDING = TrialFinding(
    rule="padding", title="20 % padding", ceiling="at most 1.25 times", times=1.25
)
MEMORY = TrialFinding(rule="memory-pressure", title="nearly full", ceiling="not known", times=None)


def train_config(**values: Any) -> dict[str, Any]:
    """All keys of a training on a CPU."""
    train = {"num_steps": 100, "device": "cpu", **values}
    return base_config(TuneConfig(train=train, budget_min=1.0))


def facts(budget_min: float = 60.0, *, nodes: tuple[str, ...] = ("n0",), **train: Any) -> Facts:
    """Of one rank with four cores, on a CPU unless `train` says otherwise."""
    values = train_config(**train)
    hardware = Hardware(device=values["device"], num_ranks=1, cpus_per_task=4)
    return Facts(train=values, hardware=hardware, nodes=nodes, budget_s=60 * budget_min)


Speed = Callable[[dict[str, Any]], float]
"""From the changes by key to tokens a second."""


def made(
    ask: Ask, number: int, tokens_per_s: float, causes: Iterable[TrialFinding], **values: Any
) -> Trial:
    """What came of an ask; half a percent of noise that is the same each time."""
    noise = 1 + 0.005 * ((number * 7) % 5 - 2) / 2
    trial = Trial(
        number=number,
        basis="b",
        purpose=ask.purpose,
        comparison=ask.comparison,
        arm=ask.arm,
        changes=ask.changes,
        num_steps=ask.num_steps,
        nodes=("n0",),
        wall_s=10.0,
        tokens_per_s=tokens_per_s * noise,
        samples_per_s=1.0,
        step_s=0.1,
        causes=tuple(causes),
    )
    return replace(trial, **values)


def simulate_tuning(
    given: Facts,
    speed: Speed,
    causes: Callable[[dict[str, Any]], Iterable[TrialFinding]] = lambda _changes: [DATA_WAIT],
    *,
    trials: list[Trial] | None = None,
    fails: Callable[[Ask], str] = lambda _ask: "",
    most: int = 500,
) -> tuple[TuningProgress, list[Trial]]:
    """Simulate a tuning to its end, or for `most` trials."""
    done = [] if trials is None else trials
    while (tuning := progress_of(given, done)).ask is not None and len(done) < most:
        ask = tuning.ask
        changes = {change.key: change.value for change in ask.changes}
        failure = fails(ask)
        gain = 1.6 if ask.num_kept_steps else 1.0
        done.append(
            made(
                ask,
                len(done) + 1,
                0.0 if failure else speed(changes) * gain,
                () if failure else causes(changes),
                nodes=given.nodes,
                failure=failure,
            )
        )
    return tuning, done
