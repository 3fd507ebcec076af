"""Work that a resume keeps although the code of its stage has changed, and work that it repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_jobs.base.index_ranges import parse_ranges, ranges_text
from slurm_jobs.plan.planned import PlannedStage
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run.earlier_fields import EarlierFields
from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_all_plans, read_completion
from slurm_jobs.run_folder.run_values import RunRecords, StageRecords
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.status.slice_status import completion_of, newest_attempt

ChangedCode = Mapping[str, Mapping[int, tuple[str, ...]]]
"""Changed files that slices used, by stage and slice, for those slices that used any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptWork:
    """Which earlier work of a run counts after a change of the code."""

    tokens: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Slices whose work counts although their job had another fingerprint, with the token of that
    job, by stage."""
    other_code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Slices that stay although files that they used have changed: ranges by token, by stage."""
    outdated: ChangedCode = field(default_factory=dict)
    """Slices that used changed files and run again, by stage, with these files. A slice that failed
    has no files here, because it runs again anyway."""
    forbidden: tuple[str, ...] = ()
    """Stages that would keep slices of other code if their `mixed_code` did not forbid it."""

    @property
    def void(self) -> dict[str, Slices]:
        """Slices whose work does not count, by stage."""
        return {stage: frozenset(slices) for stage, slices in self.outdated.items()}


NOTHING_KEPT = KeptWork()


def kept_work(
    paths: RunPaths,
    run: RunRecords,
    spec: RunSpec,
    stages: Sequence[PlannedStage],
    changed: ChangedCode,
    *,
    keep_complete: bool,
    update_code: bool,
) -> KeptWork:
    """Decide which earlier work of each stage counts.

    Slices that did not use what has changed stay, and with `keep_complete` all that are complete or
    running. Without `update_code` the slices that an earlier resume kept stay, too.
    """
    plans = read_all_plans(paths)
    earlier = EarlierFields(plans)
    fields_now = {stage.name: stage.fields for stage in stages}
    last = {values["name"]: values for values in plans[-1]["stages"]} if plans else {}
    tokens: dict[str, dict[int, str]] = {}
    other_code: dict[str, dict[str, list[int]]] = {}
    outdated: dict[str, dict[int, tuple[str, ...]]] = {}
    forbidden: list[str] = []
    for stage in stages:
        name = stage.name
        allows_mixed = spec.stages[name].mixed_code == "allow"
        kept_by_last_plan = (
            {} if update_code else _kept_before(last.get(name, {}), stage.num_slices)
        )
        for index, intent in latest_intents(run.intents, name).items():
            is_equal = intent.fingerprint == stage.fingerprint
            if not (is_equal or earlier.is_same_but_code(name, intent.fingerprint, fields_now)):
                continue
            files = changed.get(name, {}).get(index, ())
            if files:
                records = run.records[name]
                is_complete = completion_of(index, intent, records) is not None
                is_running = not is_complete and _may_be_running(index, intent, records)
                is_wanted = keep_complete or kept_by_last_plan.get(index) == intent.token
                is_wanted = is_wanted and (is_complete or is_running)
                if is_wanted and allows_mixed:
                    other_code.setdefault(name, {}).setdefault(intent.token, []).append(index)
                else:
                    has_failed = not is_complete and newest_attempt(index, intent, records)[1]
                    outdated.setdefault(name, {})[index] = () if has_failed else files
                    if is_wanted and name not in forbidden:
                        forbidden.append(name)
                    continue
            if not is_equal:
                tokens.setdefault(name, {})[index] = intent.token
    return KeptWork(
        tokens=tokens,
        other_code={
            name: {token: ranges_text(sorted(slices)) for token, slices in by_token.items()}
            for name, by_token in other_code.items()
        },
        outdated=outdated,
        forbidden=tuple(forbidden),
    )


def _may_be_running(index: int, intent: Intent, records: StageRecords) -> bool:
    """Check whether a slice has not ended, and any slice of its array element has begun.

    An element works on its slices one after the other, so this one may be next.
    """
    attempt, ending = newest_attempt(index, intent, records)
    if attempt and ending is not None:
        return False
    return any(newest_attempt(i, intent, records)[0] for i in intent.slices_of_same_element(index))


def _kept_before(values: Mapping[str, object], num_slices: int) -> dict[int, str]:
    """Return the tokens of slices that the run's last plan kept with other code."""
    kept: dict[int, str] = {}
    by_token: Mapping[str, str] = values.get("other_code", {})  # type: ignore[assignment]
    for token, ranges in by_token.items():
        kept |= dict.fromkeys(parse_ranges(ranges, below=num_slices), token)
    return kept


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedWork:
    """Complete slices of a stage that a resume runs again."""

    num_slices: int
    hours: float
    """Time of their completed attempts, all together."""
    gpu_hours: float


def repeated_work(
    paths: RunPaths, run: RunRecords, again: Mapping[str, Slices]
) -> dict[str, RepeatedWork]:
    """Return how long the complete ones among slices that run again took, by stage."""
    repeated: dict[str, RepeatedWork] = {}
    gpus_by_token: dict[str, int] = {}
    for stage, slices in again.items():
        newest = latest_intents(run.intents, stage)
        num_slices, seconds, gpu_seconds = 0, 0.0, 0.0
        for index in sorted(slices & newest.keys()):
            intent = newest[index]
            completion = completion_of(index, intent, run.records[stage])
            if completion is None:
                continue
            record = read_completion(paths, stage, completion)
            if intent.token not in gpus_by_token:
                order = read_order(paths.job_json(intent.token))
                gpus_by_token[intent.token] = order.resources.total_gpus
            duration_s = max(0.0, record.ended_unix_s - record.started_unix_s)
            num_slices += 1
            seconds += duration_s
            gpu_seconds += duration_s * gpus_by_token[intent.token]
        if num_slices:
            repeated[stage] = RepeatedWork(
                num_slices=num_slices, hours=seconds / 3600, gpu_hours=gpu_seconds / 3600
            )
    return repeated
