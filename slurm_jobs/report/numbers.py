"""Builder of a report from the records of a run. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_jobs.report.attempt_table import entry_name, explained_attempts
from slurm_jobs.report.attempts import REPORT_RUN, AttemptFacts, begun_jobs, gather_attempts
from slurm_jobs.report.current_results import SliceResults, current_results, evaluation_numbers
from slurm_jobs.report.efficiency import efficiency_numbers
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.mixed_code import mixed_code_notes
from slurm_jobs.report.node_load import probes_of_nodes, training_probes
from slurm_jobs.report.projection import project_epochs, projections
from slurm_jobs.report.rules.rule_table import find
from slurm_jobs.report.stage_numbers import cost_numbers, data_numbers, stage_numbers
from slurm_jobs.report.standings import Standing, overall_status, standings
from slurm_jobs.report.timeline import begin_note, run_span, timeline
from slurm_jobs.report.training_numbers import NOT_RECORDED, training_numbers
from slurm_jobs.report.values.cost_model import Projection
from slurm_jobs.report.values.data_model import DataNumbers, EvaluationNumbers
from slurm_jobs.report.values.finding_model import Check, Finding
from slurm_jobs.report.values.provenance_model import (
    NodeFacts,
    NodeKind,
    ProvenanceNumbers,
    StagePython,
)
from slurm_jobs.report.values.report_model import RunHeader, RunReport, Tile
from slurm_jobs.report.values.stage_model import Bar, StageNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers
from slurm_jobs.shared import units
from slurm_jobs.shared.configs.command_stages import SAID, TUNE_RUN
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.units import TimeShare

# Provenance of a run and its nodes, for its report.


def provenance_numbers(inputs: ReportInputs) -> ProvenanceNumbers:
    """Return the provenance; equal nodes are listed once per stage."""
    users: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}  # stages by Python and modules
    for stage in inputs.stages:
        for node in stage.nodes:
            users.setdefault((node.python, node.modules), {})[stage.name] = None
    return ProvenanceNumbers(
        submissions=inputs.submissions,
        nodes=tuple(k for stage in inputs.stages for k in node_kinds(stage.name, stage.nodes)),
        pythons=tuple(
            StagePython(stages=tuple(names), python=inputs.pythons[fingerprint], modules=modules)
            for (fingerprint, modules), names in users.items()
            if fingerprint in inputs.pythons
        ),
        probes=probes_of_nodes(inputs),
    )


def node_kinds(stage: str, nodes: Iterable[NodeFacts]) -> list[NodeKind]:
    """Return the nodes of a stage by their hardware and software, each kind once."""
    by_kind: dict[Hashable, list[NodeFacts]] = {}
    for node in nodes:
        # Nodes of one kind differ by a few pages of memory.
        memory_gib = None if node.memory_bytes is None else round(node.memory_bytes / 2**30)
        kind = (node.cpu, node.num_cores, memory_gib, node.system)
        gpus = (tuple(sorted(node.gpus)), node.drivers, node.gpu_problem)
        by_kind.setdefault((kind, gpus), []).append(node)
    return [
        NodeKind(
            stage=stage,
            node_names=tuple(sorted({node.node_name for node in alike})),
            cpu=alike[0].cpu,
            num_cores=alike[0].num_cores,
            memory_bytes=alike[0].memory_bytes,
            gpus=tuple(sorted(Counter(alike[0].gpus).items())),
            drivers=alike[0].drivers,
            gpu_problem=alike[0].gpu_problem,
            system=alike[0].system,
        )
        for alike in by_kind.values()
    ]


# Result of a run of `slurm-jobs tune`, in a sentence. The command prints the details.


def tuning_sentences(inputs: ReportInputs, results: Mapping[str, SliceResults]) -> dict[str, str]:
    """Return the sentence of each finished tuning stage, by its name."""
    sentences = {
        stage.name: results[stage.name].get(0, {}).get(SAID)
        for stage in inputs.stages
        if stage.run == TUNE_RUN
    }
    return {name: str(sentence) for name, sentence in sentences.items() if sentence}


def tuning_notes(inputs: ReportInputs, sentences: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each finished tuning stage, which names the command for details."""
    for name, sentence in sentences.items():
        yield (
            f"{name} tuned a training: {sentence} `slurm-jobs tune {inputs.run['run_id']}` "
            "prints before and after and all that was tried, and writes the new spec"
        )


# Sentence and five tiles at the top of a report.


_STATUS_WORDS = {
    "waiting": "Waiting after",
    "running": "Still running after",
    "completed": "Completed in",
    "failed": "Failed after",
    "cancelled": "Cancelled after",
    "stranded": "Stranded after",
    "unknown": "Not known how it ended, after",
}


def make_verdict(
    header: RunHeader,
    timeline: Sequence[TimeShare],
    findings: Sequence[Finding],
    checks: Sequence[Check],
    *,
    tuned: Sequence[str] = (),
) -> str:
    """Return the status, and what to look at first, in one sentence.

    Failures precede what could be faster; the result of a tuning precedes everything.
    """
    wall_s = header.last_unix_s - header.created_unix_s
    parts = [f"{_STATUS_WORDS[header.status]} {units.seconds(wall_s)}"]
    if header.status_reason:
        parts[0] += f" ({header.status_reason})"
    if tuned:
        return "; ".join([*parts, *(sentence.rstrip(".") for sentence in tuned)]) + "."
    if header.status in {"failed", "stranded"}:
        return "; ".join([*parts, "`slurm-jobs status` says how to go on"]) + "."
    worth = [f for f in findings if f.severity != "note"]
    if worth:
        parts.append(f"look first at finding 1: {worth[0].title}")
    elif header.status == "completed":
        num_abstained = sum(check.outcome == "abstained" for check in checks)
        parts.append(
            "too little data for most rules"
            if 2 * num_abstained > len(checks)
            else "no rule found anything that would make it much faster"
        )
    largest = max(timeline, key=lambda s: s.seconds, default=None)
    if largest is not None and not worth:
        part = "most" if largest.share > 0.5 else "the largest part"
        parts.append(f"{part} of the time went to {largest.name} ({units.percent(largest.share)})")
    return "; ".join(parts) + "."


def make_tiles(
    header: RunHeader,
    timeline: Sequence[TimeShare],
    timeline_note: str,
    training: Sequence[TrainingNumbers],
    evaluations: Sequence[EvaluationNumbers],
) -> tuple[Tile, ...]:
    """Return time, queue, throughput, data wait and result."""
    main = max(training, key=lambda t: (not t.is_earlier, t.num_steps), default=None)
    return (
        Tile(
            label="submit to end",
            value=units.seconds(header.last_unix_s - header.created_unix_s),
            note=header.status,
        ),
        _queue_tile(timeline, timeline_note),
        _rate_tile(main),
        _wait_tile(main),
        _result_tile(main, evaluations),
    )


def _queue_tile(timeline: Sequence[TimeShare], note: str) -> Tile:
    queue = [share for share in timeline if share.kind == "queue"]
    if note and not queue:
        return Tile(label="queue wait", value=units.NOT_KNOWN, note="no full accounting")
    return Tile(
        label="queue wait",
        value=units.seconds(sum(s.seconds for s in queue)),
        note=f"{units.percent(sum(s.share for s in queue))} of the time"
        + (", at least" if note else ""),
    )


def _rate_tile(main: TrainingNumbers | None) -> Tile:
    if main is None:
        return Tile(label="tokens/s", value=units.NOT_KNOWN, note="no training steps")
    rate = main.tokens_per_s
    if rate.value is None:
        return Tile(label="tokens/s", value=units.NOT_KNOWN, note=rate.missing)
    mean = "mean over " if len(main.rank_counts) > 1 else ""
    note = f"real tokens, {mean}{units.ranks(main.rank_counts)}"
    return Tile(label="tokens/s", value=units.significant(rate.value), note=note)


def _wait_tile(main: TrainingNumbers | None) -> Tile:
    if main is None:
        return Tile(label="data wait", value=units.NOT_KNOWN, note="no training steps")
    if not main.phases:
        return Tile(label="data wait", value=units.NOT_KNOWN, note=main.step_median_s.missing)
    phase = next(p for p in main.phases if p.kind == "data_wait")
    step_s = sum(p.seconds for p in main.phases)
    return Tile(
        label="data wait",
        value=units.percent(phase.share),
        note=f"{units.seconds(phase.seconds)} of {units.seconds(step_s)} per step",
    )


def _result_tile(main: TrainingNumbers | None, evaluations: Sequence[EvaluationNumbers]) -> Tile:
    """Return the result of the other tiles' training; else of the last evaluating stage, named.

    That is the share that matched exactly, or else the loss.
    """
    shares: list[tuple[EvaluationNumbers, str]] = []
    for evaluation in evaluations:
        names = [n for n in evaluation.numbers if "exact_match" in n and not units.is_count(n)]
        if names:
            shares.append((evaluation, min(names)))
    of_training = [share for share in shares if main is not None and share[0].stage == main.stage]
    last = None if main is None or main.is_earlier else main.last_loss.value
    if main is None or last is None:
        loss, loss_of = units.NOT_KNOWN, ""
    else:
        loss, loss_of = units.significant(last), units.last_steps(main.num_last_losses)
    if shares:
        shown, name = (of_training or shares)[-1]
        parent, dot, _ = name.rpartition(".")
        num_exact, num_samples = (
            shown.numbers.get(f"{parent}{dot}num_{count}") for count in ("exact", "samples")
        )
        note = ""
        if num_exact is not None and num_samples is not None:
            note = f"{num_exact:,.0f} of {num_samples:,.0f} held out"
        elif of_training:
            note = ", ".join(filter(None, (f"loss {loss}", loss_of)))
        if not of_training or len(shares) > 1:
            note = ": ".join(filter(None, (shown.stage, note)))
        return Tile(label="exact match", value=units.result(name, shown.numbers[name]), note=note)
    if main is None or last is None:
        is_earlier = main is not None and main.is_earlier
        note = "the newest job has no step" if is_earlier else "no evaluation, no loss"
        return Tile(label="result", value=units.NOT_KNOWN, note=note)
    note = f"{loss_of}, from {units.quantity(main.first_loss)}"
    return Tile(label="loss", value=loss, note=note)


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
    efficiency = efficiency_numbers(inputs, stages, attempts)
    explained = explained_attempts(inputs)
    findings, checks = find(
        current, judged, shares, note, data, efficiency=efficiency, attempts=explained
    )
    tuned = tuning_sentences(inputs, results)
    notes = [*tuning_notes(inputs, tuned), *_notes(inputs, attempts, note, training, stages)]
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
    """Return the trainings of stages in the spec: to print, and for the rules."""
    numbers_of_stages: list[TrainingNumbers] = []
    judged: list[TrainingNumbers] = []
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
                numbers_of_stages += with_probes
            if to_judge or not is_mixed:
                judged += with_probes
    return tuple(numbers_of_stages), tuple(judged)


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
    status, reason = overall_status(stages, is_silent=is_silent)
    name = str(run.get("name", inputs.spec.get("name", "")))
    texts = ("run_id", "submitted_by", "host", "scheduler", "version", "spec_file")
    return RunHeader(
        name=name,
        title=config.title or name,
        status=status,
        status_reason=reason,
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
    """Yield which numbers of a stage are lower bounds, by the reason."""
    numbers = {
        "hours": stage.cpu_hours,
        "longest job": stage.longest_s,
        "longest queue wait": stage.queue_wait_max_s,
    }
    if not stage.is_largest_killed:  # the table says why
        numbers["memory"] = stage.max_rss_bytes
    for reason in dict.fromkeys(n.at_least for n in numbers.values() if n.at_least):
        names = [name for name, number in numbers.items() if number.at_least == reason]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        are = "are lower bounds" if len(names) > 1 or names == ["hours"] else "is a lower bound"
        yield f"{stage.name}: {listed} {are}, CPU used is of the starts that are known: {reason}"


# Report for a reader who gets the failures elsewhere.


def without_failures(report: RunReport, names: Collection[str]) -> RunReport:
    """Return the report without the reasons of these failures.

    Args:
        report: report of a run.
        names: of attempts that failed, as `words.attempt_name` has them. Others, such as those
            before a retry, stay in the report.
    """
    if not names:
        return report
    status_reason = report.header.status_reason
    for stage in report.stages:
        if status_reason.endswith(f"{stage.name} failed: {stage.status_reason}"):
            status_reason = status_reason.removesuffix(f": {stage.status_reason}")
            break
    header = replace(report.header, status_reason=status_reason)
    heads = tuple(f"{name}: " for name in names)
    return replace(
        report,
        header=header,
        verdict=make_verdict(header, report.timeline, report.findings, report.checks),
        stages=tuple(
            replace(stage, failures=tuple(f for f in stage.failures if not f.startswith(heads)))
            for stage in report.stages
        ),
        attempts=tuple(
            replace(
                of_stage, entries=tuple(e for e in of_stage.entries if entry_name(e) not in names)
            )
            for of_stage in report.attempts
        ),
    )
