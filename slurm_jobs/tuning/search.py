"""Search of a tuning: the next trial and the results, from the finished trials.

First a baseline with and without its data path, then the knobs that findings name, strongest
first, each compared with the best so far; finally before and after. The trials are the only
state: a killed tuning continues after the last one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.report.comparison.speed_verdict import Verdict
from slurm_jobs.tuning.budget_needs import (
    MARGIN,
    left_for_knobs_s,
    more_budget_min,
    needed_s,
    open_trials,
    why_no_room,
)
from slurm_jobs.tuning.knobs import PREFETCH, Proposal, propose
from slurm_jobs.tuning.pairs import MIN_REPEATS, TrialPairs, afford, pairs_of
from slurm_jobs.tuning.trial_config import problem_with, with_changes
from slurm_jobs.tuning.trial_lengths import (
    CLOSING_TRIALS,
    PROBE_STEPS,
    Length,
    least_budget_s,
    length_of,
    trial_seconds,
)
from slurm_jobs.tuning.trial_model import (
    Ask,
    Change,
    Changes,
    Outcome,
    Purpose,
    Trial,
    TrialFinding,
)
from slurm_jobs.tuning.tuning_progress import (
    Facts,
    NotTried,
    NotTriedKind,
    Tried,
    TuningProgress,
)
from slurm_jobs.tuning.tuning_sentence import TOO_SHORT

KEPT_STEPS = 8
"""Steps of the control without data path: few enough for memory, more than the loader reads ahead.
"""
BUDGET = "the budget was used up"
_TIMES_AHEAD = 3
"""Measured steps per step that is read ahead, so that a trial mostly measures the loader's rate,
not its buffer. Own choice."""
_DATA, _CLOSING = "data", "closing"
_MOST_PROBES = 2
_COLD = 3.0
"""Factor by which a first start on a node, with cold caches, may be slower than the next."""
_STAGING_S = 1e6
_AT_MOST = 3.0
_LEEWAY_S = 120.0
"""A trial is ended after `_AT_MOST` times the time of the others plus `_LEEWAY_S`. Own choices."""


@dataclass(slots=True)
class _State:
    """Working state of `progress_of`."""

    facts: Facts
    trials: Sequence[Trial]
    length: Length
    probe: Trial
    kept: Changes = ()
    causes: tuple[TrialFinding, ...] = ()
    tried: list[Tried] = field(default_factory=list)
    not_tried: dict[str, NotTried] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @property
    def left_s(self) -> float:
        return self.facts.budget_s - sum(trial.wall_s for trial in self.trials)

    @property
    def trial_s(self) -> float:
        return trial_seconds(self.trials, self.length)

    def pairs(self, comparison: str) -> TrialPairs:
        return pairs_of(self.trials, comparison, self.facts.nodes, self.length.num_steps)

    def is_too_short_for(self, change: Change) -> bool:
        """Check whether trials are too short to empty the loader's buffer with the change."""
        num_measured = self.length.num_steps - WARMUP_STEPS
        return change.key == PREFETCH and num_measured < _TIMES_AHEAD * change.value

    def affords(self, pairs: TrialPairs) -> bool:
        """Check whether the budget suffices for the rest of a comparison and the closing trials.

        Half of a comparison is useless, and trials may have become slower than the first ones. So
        while nothing is kept, a comparison that has begun may use the time of the closing trials,
        which are needed only if it ends with a change that is kept.
        """
        num_repeats = min(len(pairs.first), len(pairs.second))
        is_half_done = pairs.is_begun and num_repeats < MIN_REPEATS
        may_use_closing_time = is_half_done and not self.kept
        kept_back = 0 if may_use_closing_time else CLOSING_TRIALS
        return afford(pairs, self.left_s, self.trial_s, kept_back=kept_back)

    def affords_control(self, control: TrialPairs) -> bool:
        """Check whether the budget suffices for the baseline with and without its data path.

        After the first repeats, one knob and the closing trials must remain affordable.
        """
        has_min_repeats = min(len(control.first), len(control.second)) >= MIN_REPEATS
        kept_back = 2 * CLOSING_TRIALS if has_min_repeats else 0
        return afford(control, self.left_s, self.trial_s, kept_back=kept_back)

    def num_ahead(self, changes: Changes) -> int:
        """Return how many steps the loader may read ahead with these changes."""
        return _num_ahead(with_changes(self.facts.train, changes))

    def ask(
        self, purpose: Purpose, comparison: str, pairs: TrialPairs, arms: tuple[Changes, Changes]
    ) -> Ask:
        """Return the next trial of a comparison between the changes of arm A and those of arm B."""
        changes_of_a, changes_of_b = arms
        arm = pairs.next_arm
        is_without_data_path = purpose == "data" and arm == "B"
        num_ahead = max(self.num_ahead(changes_of_a), self.num_ahead(changes_of_b))
        expected_at_most_s = _AT_MOST * self.trial_s + _LEEWAY_S
        return Ask(
            purpose=purpose,
            comparison=comparison,
            arm=arm,
            changes=changes_of_a if arm == "A" else changes_of_b,
            num_steps=self.length.num_steps,
            num_kept_steps=KEPT_STEPS if is_without_data_path else 0,
            num_dropped_steps=0 if is_without_data_path else num_ahead,
            # What the budget leaves may be too short for any trial.
            limit_s=max(2 * self.trial_s, min(self.left_s, expected_at_most_s)),
        )


def progress_of(facts: Facts, trials: Sequence[Trial]) -> TuningProgress:
    """Return the progress after `trials`, all of the same training and code, in order.

    The next trial is the first that is missing of: the probe, which is repeated if it may only have
    been slow because of cold caches; the baseline with and without its data path; the knobs; before
    and after. It ends early with a problem if the training cannot be tried, or the budget is too
    small for that.
    """
    probes = [t for t in trials if t.purpose == "probe" and t.nodes == facts.nodes]
    probe = min((t for t in probes if not t.failure), key=lambda t: t.wall_s, default=None)
    if probe is None:
        return _progress_without_probe(facts, probes)
    if least_budget_s(probe) > facts.budget_s:
        return _progress_in_small_budget(facts, probes, probe)
    length = length_of(probe, facts.budget_s)
    state = _State(facts=facts, trials=trials, length=length, probe=probe)
    control = state.pairs(_DATA)
    if not control.is_over and state.affords_control(control):
        return TuningProgress(probe=probe, ask=state.ask("data", _DATA, control, ((), ())))
    if control.is_broken or (not control.first and control.failures):
        why = control.failures[-1].failure
        return TuningProgress(probe=probe, problem=f"the training as it is no longer runs: {why}")
    if not control.first:
        problem = f"{BUDGET} before the training as it is was measured; give a larger --budget"
        return TuningProgress(probe=probe, problem=problem)
    state.causes = causes = _causes(control.first[0], probe)
    ask = _decide_knobs(state)
    comparison = f"{_CLOSING} {_name((), state.kept)}"  # more may be kept after a resume
    closing = state.pairs(comparison) if state.kept else None
    if ask is None and closing is not None and not closing.is_over and state.left_s > 0:
        ask = state.ask("closing", comparison, closing, ((), state.kept))
    return TuningProgress(
        ask=ask,
        probe=probe,
        control=control,
        causes=causes,
        tried=tuple(state.tried),
        not_tried=tuple(state.not_tried.values()),
        kept=state.kept,
        closing=closing,
        more_budget_min=_more_budget(state) if ask is None else None,
    )


def _progress_without_probe(facts: Facts, failed_probes: Sequence[Trial]) -> TuningProgress:
    if len(failed_probes) < _MOST_PROBES:
        return TuningProgress(ask=_probe(facts))
    failure = failed_probes[-1].failure
    return TuningProgress(problem=f"the training as it is cannot be tried: {failure}")


def _progress_in_small_budget(
    facts: Facts, probes: Sequence[Trial], probe: Trial
) -> TuningProgress:
    """Return the progress if by the fastest of the probes the budget is too small."""
    least_s = least_budget_s(probe)
    if len(probes) < _MOST_PROBES and least_s < _COLD * facts.budget_s:
        return TuningProgress(probe=probe, ask=_probe(facts))
    least_min = math.ceil(least_s / 60)
    advised_min = math.ceil(MARGIN * least_min)
    problem = (
        f"a budget of {facts.budget_s / 60:g} min is too small: a trial of {PROBE_STEPS} steps "
        f"takes {probe.wall_s:.0f} s here, and the baseline with and without its data, one knob, "
        f"and before and after need {least_min} min; give --budget {advised_min} or more, because "
        "later trials may take longer"
    )
    return TuningProgress(probe=probe, problem=problem, advised_budget_min=advised_min)


def _num_ahead(train: Mapping[str, Any]) -> int:
    return int(train["num_prefetch_batches"])


def _probe(facts: Facts) -> Ask:
    return Ask(
        purpose="probe",
        comparison="probe",
        arm="A",
        changes=(),
        num_steps=PROBE_STEPS,
        num_dropped_steps=_num_ahead(facts.train),
        limit_s=_STAGING_S,  # it also stages the data, however long that takes
    )


def _causes(trial: Trial, probe: Trial) -> tuple[TrialFinding, ...]:
    """Return the causes of a trial; those that need a profile come from the probe."""
    known = {cause.rule for cause in trial.causes}
    profiled = [c for c in probe.causes if c.rule == "exposed-communication"]
    return (*trial.causes, *(c for c in profiled if c.rule not in known))


def _decide_knobs(state: _State) -> Ask | None:
    """Decide about the knobs in order; return the first trial that is missing for it, if any.

    Adds each decision to `state`: to `tried` or `not_tried`, and for a knob that is kept also to
    `kept`, with the `causes` that remain.
    """
    while (proposal := _next(state)) is not None:
        change = proposal.change
        assert change is not None
        state.seen.add(change.text)
        after = (*state.kept, change)
        comparison = _name(state.kept, after)
        pairs = state.pairs(comparison)
        if not pairs.is_begun:
            if problem := problem_with(state.facts.train, after):
                why = f"does not fit the rest of the config: {problem}"
                _note_not_tried(state, proposal, "misfit", why)
                continue
            if state.is_too_short_for(change):
                _note_not_tried(state, proposal, "too_short", TOO_SHORT)
                continue
        if not pairs.is_over and state.affords(pairs):
            return state.ask("knob", comparison, pairs, (state.kept, after))
        if not pairs.is_begun:
            needs_s = needed_s(pairs, state.trial_s)
            left_s = left_for_knobs_s(state.facts.budget_s, state.trials)
            _note_not_tried(state, proposal, "no_room", why_no_room(left_s, needs_s), needs_s)
            continue
        # The comparison is over, or the budget does not suffice for the rest of it.
        outcome, why = _outcome(pairs, pairs.verdict)
        state.tried.append(Tried(proposal=proposal, pairs=pairs, outcome=outcome, why=why))
        if outcome == "kept":
            state.kept = after
            state.causes = _causes(pairs.second[0], state.probe)
    return None


def _next(state: _State) -> Proposal | None:
    """Return the first new proposal; note those that cannot be tried."""
    train = with_changes(state.facts.train, state.kept)
    for proposal in propose(state.causes, train, state.facts.hardware):
        if proposal.change is None:
            _note_not_tried(state, proposal, "no_change", proposal.why_not)
        elif proposal.change.text not in state.seen:
            return proposal
    return None


def _note_not_tried(
    state: _State,
    proposal: Proposal,
    kind: NotTriedKind,
    why: str,
    needs_s: float | None = None,
) -> None:
    name = proposal.name if proposal.name != "-" else proposal.cause.rule
    left = NotTried(name=name, finding=proposal.cause.title, kind=kind, why=why, needs_s=needs_s)
    state.not_tried.setdefault(name, left)


def _more_budget(state: _State) -> int | None:
    """Return the minutes that suffice for the cheapest comparison that had no room; None without.

    Undecided comparisons come before it, because a larger budget continues them first.
    """
    needs = [entry.needs_s for entry in state.not_tried.values() if entry.needs_s is not None]
    if not needs:
        return None
    compared = [state.pairs(_DATA), *(entry.pairs for entry in state.tried)]
    first_s = open_trials(compared) * state.trial_s
    given_s = state.facts.budget_s
    return more_budget_min(state.probe, state.trials, first_s + min(needs), state.trial_s, given_s)


def _name(before: Changes, after: Changes) -> str:
    return json.dumps([[change.text for change in changes] for changes in (before, after)])


def _outcome(pairs: TrialPairs, verdict: Verdict | None) -> tuple[Outcome, str]:
    """Keep only what is surely faster."""
    if pairs.second_failure:
        return "failed", pairs.second_failure
    if pairs.is_broken:
        return "undecided", f"the training without it failed: {pairs.failures[-1].failure}"
    if verdict is None or min(len(pairs.first), len(pairs.second)) < MIN_REPEATS:
        return "undecided", BUDGET
    if verdict.word == "faster":
        return "kept", "faster"
    return "rejected", verdict.word
