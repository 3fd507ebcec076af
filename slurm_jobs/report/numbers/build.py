"""Builder of a report from the records of a run. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_jobs.common.stage_config.report import ReportConfig
from slurm_jobs.common.stage_config.tune import TUNE_RUN
from slurm_jobs.report import words
from slurm_jobs.report.findings.find import find
from slurm_jobs.report.inputs.records import ReportInputs
from slurm_jobs.report.model.cost import Projection
from slurm_jobs.report.model.run import Bar, DataNumbers, RunHeader, RunReport, StageNumbers
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.numbers.attempts import (
    REPORT_RUN,
    AttemptFacts,
    begun_jobs,
    gather_attempts,
)
from slurm_jobs.report.numbers.cost import cost_numbers
from slurm_jobs.report.numbers.data import data_numbers
from slurm_jobs.report.numbers.device import NOT_RECORDED
from slurm_jobs.report.numbers.probes import training_probes
from slurm_jobs.report.numbers.projection import project_epochs, projections
from slurm_jobs.report.numbers.provenance import provenance_numbers
from slurm_jobs.report.numbers.results import current_results, evaluation_numbers
from slurm_jobs.report.numbers.stages import stage_numbers
from slurm_jobs.report.numbers.status import Standing, overall_status, standings
from slurm_jobs.report.numbers.timeline import begin_note, run_span, timeline
from slurm_jobs.report.numbers.training import training_numbers
from slurm_jobs.report.numbers.tunings import tuning_notes, tuning_sentences
from slurm_jobs.report.verdict import make_tiles, make_verdict


def build_report(
    inputs: ReportInputs, config: ReportConfig, *, num_epochs: float | None = None
) -> RunReport:
    """Return the whole report; `num_epochs` adds a projection of so many."""
    attempts, results = gather_attempts(inputs), current_results(inputs)
    standing = standings(inputs, attempts)
    stages = tuple(
        stage_numbers(s, attempts[s.name], standing[s.name], results[s.name]) for s in inputs.stages
    )
    training, judged = _training(inputs, attempts, config)
    span = run_span(inputs, attempts, standing)
    shares, note = timeline(inputs, attempts, span)
    worked = tuple(s for s in stages if s.run != REPORT_RUN)
    current = tuple(s for s in worked if not s.is_former)
    header = _header(inputs, [(s.name, standing[s.name]) for s in current], span, config)
    evaluation, data = evaluation_numbers(current), data_numbers(inputs, results)
    bars = tuple(f.bar for stage in worked for f in attempts[stage.name])
    ahead, not_known = _ahead(inputs, current, training, bars, data=data, num_epochs=num_epochs)
    findings, checks = find(current, judged, shares, note, data)
    tuned = tuning_sentences(inputs, results)
    said = [*tuning_notes(inputs, tuned), *_notes(inputs, note, training, stages)]
    return RunReport(
        header=header,
        verdict=make_verdict(header, shares, findings, checks, tuned=tuple(tuned.values())),
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
        notes=(*said, *_clock_notes(inputs, attempts), *not_known),
        spec=inputs.spec,
        provenance=provenance_numbers(inputs),
        cost=cost_numbers(stages, training, inputs.price),
        projections=ahead,
    )


def _training(
    inputs: ReportInputs, attempts: Mapping[str, Sequence[AttemptFacts]], config: ReportConfig
) -> tuple[tuple[TrainingNumbers, ...], tuple[TrainingNumbers, ...]]:
    """Return the trainings of stages in the spec: to print, and for the rules."""
    told: list[TrainingNumbers] = []
    judged: list[TrainingNumbers] = []
    for stage in inputs.stages:
        if stage.is_former:
            continue
        facts = attempts[stage.name]
        given = (stage, facts, config.warmup_steps, inputs.intents)
        own = [
            replace(numbers, probes=training_probes(numbers, inputs, facts))
            for numbers in training_numbers(*given)
        ]
        told += own
        if len({record.fingerprint for record in stage.attempts}) > 1:
            own = [
                replace(numbers, probes=training_probes(numbers, inputs, facts))
                for numbers in training_numbers(*given, to_judge=True)
            ]
        judged += own
    return tuple(told), tuple(judged)


def _ahead(
    inputs: ReportInputs,
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    bars: Sequence[Bar],
    *,
    data: Sequence[DataNumbers],
    num_epochs: float | None,
) -> tuple[tuple[Projection, ...], tuple[str, ...]]:
    """Return the projections, and notes on what is unknown."""
    by_name = {stage.name: stage for stage in inputs.stages}
    found, notes = projections(
        by_name, stages, training, bars, inputs.price, begun=begun_jobs(inputs)
    )
    if num_epochs is None:
        return found, notes
    more, why_not = project_epochs(
        by_name,
        stages,
        training,
        inputs.price,
        num_epochs=num_epochs,
        num_samples={d.stage: d.num_samples.value for d in data if d.num_samples.value},
    )
    return (*found, *more), (*notes, *why_not)


def _header(
    inputs: ReportInputs,
    stages: Sequence[tuple[str, Standing]],
    span: tuple[float, float],
    config: ReportConfig,
) -> RunHeader:
    run: Mapping[str, object] = inputs.run
    is_silent = inputs.answer is not None and not inputs.answer.knows_the_living
    status, reason = overall_status(stages, is_silent=is_silent)
    name = str(run.get("name", inputs.spec.get("name", "")))
    return RunHeader(
        run_id=str(run.get("run_id", "")),
        name=name,
        title=config.title or name,
        status=status,
        status_reason=reason,
        submitted_by=str(run.get("submitted_by", "")),
        host=str(run.get("host", "")),
        scheduler=str(run.get("scheduler", "")),
        version=str(run.get("version", "")),
        spec_file=str(run.get("spec_file", "")),
        created_unix_s=span[0],
        last_unix_s=span[1],
    )


def _notes(
    inputs: ReportInputs,
    timeline_note: str,
    training: Sequence[TrainingNumbers],
    stages: Sequence[StageNumbers],
) -> tuple[str, ...]:
    notes = [timeline_note] if timeline_note else []
    notes.extend(
        f"{words.stage_name(stage.name, is_former=True)} is no longer in the spec since a resume: "
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
    return tuple(notes)


def _clock_notes(
    inputs: ReportInputs, attempts: Mapping[str, Sequence[AttemptFacts]]
) -> tuple[str, ...]:
    notes = (fact.clock_note for facts in attempts.values() for fact in facts if fact.clock_note)
    return (*begin_note(inputs), *notes)


def _lower_bounds(stage: StageNumbers) -> Iterator[str]:
    """Yield which numbers of a stage are lower bounds, by the reason."""
    numbers = {
        "hours": stage.cpu_hours,
        "longest job": stage.longest_s,
        "longest queue wait": stage.queue_wait_max_s,
        "memory": stage.max_rss_bytes,
    }
    for reason in dict.fromkeys(n.at_least for n in numbers.values() if n.at_least):
        names = [name for name, number in numbers.items() if number.at_least == reason]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        are = "are lower bounds" if len(names) > 1 or names == ["hours"] else "is a lower bound"
        yield f"{stage.name}: {listed} {are}, CPU used is of the starts that are known: {reason}"
