"""Builder of a report from the records of a run. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from slurm_jobs.formats.configs.stages import ReportConfig
from slurm_jobs.report.attempts.attempt_table import explained_attempts
from slurm_jobs.report.attempts.gathered_attempts import (
    REPORT_RUN,
    AttemptFacts,
    begun_jobs,
    gather_attempts,
)
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.numbers.cost_numbers import cost_numbers
from slurm_jobs.report.numbers.current_results import current_results, evaluation_numbers
from slurm_jobs.report.numbers.data_numbers import data_numbers
from slurm_jobs.report.numbers.efficiency import efficiency_numbers
from slurm_jobs.report.numbers.headline import make_tiles, make_verdict
from slurm_jobs.report.numbers.mixed_code import mixed_code_notes
from slurm_jobs.report.numbers.projection import project_epochs, projections
from slurm_jobs.report.numbers.provenance_numbers import provenance_numbers
from slurm_jobs.report.numbers.stage_numbers import stage_numbers
from slurm_jobs.report.numbers.standings import Standing, overall_status, standings
from slurm_jobs.report.numbers.timeline import begin_note, coverage_note, run_span, timeline
from slurm_jobs.report.numbers.trainings.device_times import NOT_RECORDED
from slurm_jobs.report.numbers.trainings.training_numbers import training_numbers
from slurm_jobs.report.numbers.trainings.training_probes import training_probes
from slurm_jobs.report.numbers.tuning_result import tuning_notes, tuning_sentences
from slurm_jobs.report.rules.rule_table import find
from slurm_jobs.report.values.cost_model import Projection
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.report_model import RunHeader, RunReport
from slurm_jobs.report.values.stage_model import Bar, StageNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers


def build_report(
    inputs: ReportInputs, config: ReportConfig, *, num_epochs: float | None = None
) -> RunReport:
    """Return the whole report; `num_epochs` adds a projection of so many.

    The table and the cost are of all stages. The bars leave out the stage that makes this report.
    Status, evaluation, projections and the rules for stages also leave out those that the spec no
    longer has: their time and use count, but their status, steps and results do not.
    """
    attempts, results = gather_attempts(inputs), current_results(inputs)
    standing = standings(inputs, attempts)
    stages = tuple(
        stage_numbers(s, attempts[s.name], standing[s.name], results[s.name]) for s in inputs.stages
    )
    training, training_to_judge = _training(inputs, attempts, config)
    span = run_span(inputs, attempts, standing)
    shares = timeline(inputs, attempts, span)
    note = coverage_note(inputs, attempts, span[1])
    without_report = tuple(s for s in stages if s.run != REPORT_RUN)
    in_spec = tuple(s for s in without_report if not s.is_former)
    header = _header(inputs, [(s.name, standing[s.name]) for s in in_spec], span, config)
    evaluation, data = evaluation_numbers(in_spec), data_numbers(inputs, results)
    bars = tuple(f.bar for stage in without_report for f in attempts[stage.name])
    ahead, not_known = _ahead(inputs, in_spec, training, bars, data=data, num_epochs=num_epochs)
    efficiency = efficiency_numbers(inputs, stages, attempts)
    explained = explained_attempts(inputs)
    findings, checks = find(
        in_spec, training_to_judge, shares, note, data, efficiency=efficiency, attempts=explained
    )
    tuned = tuning_sentences(inputs, results)
    notes = [*tuning_notes(inputs, tuned), *_notes(inputs, attempts, note, training, stages)]
    return RunReport(
        header=header,
        verdict=make_verdict(header, shares, findings, checks, tuned=tuple(tuned.values())),
        tunings=tuple(tuned.values()),
        tiles=make_tiles(header, shares, note, training, evaluation),
        timeline=shares,
        timeline_note=note,
        bars=bars,
        stages=stages,
        training=training,
        data=data,
        evaluation=evaluation,
        findings=findings,
        checks=checks,
        notes=(*notes, *mixed_code_notes(inputs), *not_known),
        spec=inputs.spec,
        provenance=provenance_numbers(inputs),
        cost=cost_numbers(stages, training, inputs.price),
        attempts=explained,
        efficiency=efficiency,
        projections=ahead,
    )


def _training(
    inputs: ReportInputs, attempts: Mapping[str, Sequence[AttemptFacts]], config: ReportConfig
) -> tuple[tuple[TrainingNumbers, ...], tuple[TrainingNumbers, ...]]:
    """Return the trainings of stages in the spec: to print, and for the rules to judge.

    The two differ only for a stage whose config or code changed between its attempts: its numbers
    to print are of all attempts. The rules judge the newest config and code, if they have enough
    steps.
    """
    to_print: list[TrainingNumbers] = []
    for_rules: list[TrainingNumbers] = []
    for stage in inputs.stages:
        if stage.is_former:
            continue
        facts = attempts[stage.name]
        is_mixed = len({record.fingerprint for record in stage.attempts}) > 1
        for to_judge in (False, True) if is_mixed else (False,):
            with_probes = [
                replace(numbers, probes=training_probes(numbers, inputs, facts))
                for numbers in training_numbers(
                    stage, facts, config.warmup_steps, inputs.intents, to_judge=to_judge
                )
            ]
            if not to_judge:
                to_print += with_probes
            if to_judge or not is_mixed:
                for_rules += with_probes
    return tuple(to_print), tuple(for_rules)


def _ahead(
    inputs: ReportInputs,
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    bars: Sequence[Bar],
    *,
    data: Sequence[DataNumbers],
    num_epochs: float | None,
) -> tuple[tuple[Projection, ...], tuple[str, ...]]:
    by_name = {stage.name: stage for stage in inputs.stages}
    projected, notes = projections(
        by_name, stages, training, bars, inputs.price, begun=begun_jobs(inputs)
    )
    if num_epochs is None:
        return projected, notes
    more, why_not = project_epochs(
        by_name,
        stages,
        training,
        inputs.price,
        num_epochs=num_epochs,
        num_samples={d.stage: d.num_samples.value for d in data if d.num_samples.value},
    )
    return (*projected, *more), (*notes, *why_not)


def _header(
    inputs: ReportInputs,
    stages: Sequence[tuple[str, Standing]],
    span: tuple[float, float],
    config: ReportConfig,
) -> RunHeader:
    run: Mapping[str, object] = inputs.run
    is_silent = inputs.answer is not None and not inputs.answer.knows_the_living
    overall = overall_status(stages, is_silent=is_silent)
    name = str(run.get("name", inputs.spec.get("name", "")))
    texts = ("run_id", "submitted_by", "host", "scheduler", "version", "spec_file")
    return RunHeader(
        name=name,
        title=config.title or name,
        status=overall.status,
        status_head=overall.head,
        status_reason=": ".join(filter(None, [overall.head, overall.reason])),
        created_unix_s=span[0],
        last_unix_s=span[1],
        **{key: str(run.get(key, "")) for key in texts},
    )


def _notes(
    inputs: ReportInputs,
    attempts: Mapping[str, Sequence[AttemptFacts]],
    timeline_note: str,
    training: Sequence[TrainingNumbers],
    stages: Sequence[StageNumbers],
) -> tuple[str, ...]:
    notes = [timeline_note] if timeline_note else []
    notes.extend(
        f"{units.stage_name(stage.name, is_former=True)} is no longer in the spec since a resume: "
        "its time and use count, its status, steps and results do not"
        for stage in inputs.stages
        if stage.is_former
    )
    notes.extend(note for stage in stages for note in _lower_bounds(stage))
    notes.extend(f"{t.stage}: {t.too_few}" for t in training if t.too_few)
    notes.extend(f"{t.stage}, {note}" for t in training for note in t.notes)
    if not training and not any(stage.run == TUNE_RUN for stage in stages):
        notes.append("no stage recorded training steps")
    if not any(t.has_device_times for t in training):
        notes.append(NOT_RECORDED)
    notes.extend(inputs.problems)
    notes.extend(begin_note(inputs))
    notes.extend(
        fact.clock_note for facts in attempts.values() for fact in facts if fact.clock_note
    )
    return tuple(notes)


def _lower_bounds(stage: StageNumbers) -> Iterator[str]:
    """Yield which numbers of a stage are lower bounds, one sentence for each reason."""
    numbers = {
        "hours": stage.cpu_hours,
        "longest job": stage.longest_s,
        "longest queue wait": stage.queue_wait_max_s,
    }
    if not stage.is_largest_killed:  # the table says why
        numbers["memory"] = stage.max_rss_bytes
    names_by_reason: dict[str, list[str]] = {}
    for name, number in numbers.items():
        if number.at_least:
            names_by_reason.setdefault(number.at_least, []).append(name)
    for reason, names in names_by_reason.items():
        listed = names[-1]
        if len(names) > 1:
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
        is_plural = len(names) > 1 or names == ["hours"]
        are = "are lower bounds" if is_plural else "is a lower bound"
        yield f"{stage.name}: {listed} {are}, CPU used is of the starts that are known: {reason}"
