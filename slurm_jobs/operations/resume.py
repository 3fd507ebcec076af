"""Submission of the missing work of a run, and nothing else.

A resume uses the run's own spec and code. `--set` changes the spec (more memory, another time
limit); `--update-spec` and `--update-code` take the current file and code. A stage whose work is
changed by that runs again, and so does what `--again` names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from slurm_jobs.common.files import read_json
from slurm_jobs.common.resources import JobResources
from slurm_jobs.dependencies import Slices
from slurm_jobs.fingerprints import changed_fields, parents_of
from slurm_jobs.operations.again import slices_named
from slurm_jobs.operations.gpu_kinds import kinds_begun_on, kinds_kept
from slurm_jobs.operations.limits import (
    effective_variables,
    limits_of,
    refuse_impossible_resume,
    shell_notes,
)
from slurm_jobs.operations.load import code_sources
from slurm_jobs.operations.run_spec import GivenSpec, file_differs, keep_spec, spec_of
from slurm_jobs.operations.submit import OnJob, run_context
from slurm_jobs.operations.trainings import Start, training_starts
from slurm_jobs.plan import Plan, PlannedStage, make_plan
from slurm_jobs.run.connections import SubmittedJob
from slurm_jobs.run.home import refuse_elsewhere
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run.resume import clear_the_way, prepare_resume
from slurm_jobs.run.snapshot import CodeSnapshot, renew_ours, take_snapshot, tree_fingerprint
from slurm_jobs.run.sort_out import Preparation
from slurm_jobs.run.store import (
    last_plan_number,
    read_meta,
    read_plan_values,
    read_shell_variables,
)
from slurm_jobs.run.submission import RunContext, submit_plan, write_plan
from slurm_jobs.run.turns import submitting
from slurm_jobs.schedulers.slurm_environment import kept_variables, shell_defaults
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides import sets_value
from slurm_jobs.troubles import NO_TROUBLE, RAISED, adjusted


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumption:
    """Result or plan of a resume."""

    paths: RunPaths
    plan: Plan
    preparation: Preparation
    code_changed: bool
    """True if the user's code differs from what this resume used."""
    spec_changed: bool = False
    """True if the spec's file differs from the text that this resume used."""
    ours_renewed: bool = False
    """True if the run's copy of slurm-jobs cannot read today's orders: new jobs run today's
    version, with the user's code as the run has it."""
    adjustments: tuple[str, ...] = ()
    """Requests of jobs that differ from before, after failures: `on_resume`."""
    trainings: Mapping[str, Start] = field(default_factory=dict)
    """Where trainings with checkpoints begin, by stage."""
    spec_notes: tuple[str, ...] = ()
    """Warnings about the spec with its current overrides."""
    left_out: tuple[str, ...] = ()
    """Earlier overrides whose stages are no longer in the current file, in words."""
    shell_notes: tuple[str, ...] = ()
    """SBATCH_... variables, of this shell and of the submission: those that apply and those
    ignored."""
    jobs: tuple[SubmittedJob, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeRequest:
    """Options of a resume."""

    overrides: Sequence[str] = ()
    """`KEY.KEY=VALUE`, as for `--set`."""
    update_code: bool = False
    """Use the user's current code."""
    update_spec: bool = False
    """Use the spec's current file; the run's earlier overrides stay."""
    spec_file: Path | None = None
    """With `update_spec`: this file, instead of the one that the run was submitted from."""
    again: Sequence[str] = ()
    """`STAGE` or `STAGE:0-3,7`: run these again, complete or not."""
    dry_run: bool = False
    """Report what would run, without submitting."""


NOTHING_ELSE = ResumeRequest()
"""Request that submits only what is missing."""


def resume(
    run_dir: Path,
    request: ResumeRequest = NOTHING_ELSE,
    *,
    on_prepared: Callable[[Resumption], None] = lambda _resumption: None,
    on_job: OnJob = lambda _job: None,
) -> Resumption:
    """Submit the missing work.

    Args:
        run_dir: the run's folder.
        request: its options.
        on_prepared: called with the plan before anything happens; not in a dry run.
        on_job: called with each job that the scheduler accepted.

    Raises:
        SpecError: the spec or an override is wrong.
        InputError: a fixed key of the run was changed, `again` names nothing of it, the
            cluster could never run what is missing, or its jobs are another cluster's or user's.
        RunFailedError: another command is submitting for this run.
        SchedulerError: the scheduler could not be asked, or refused a job.
    """
    paths = RunPaths(run_dir)
    refuse_elsewhere(paths, read_meta(paths))
    if request.dry_run:
        return _prepare(paths, request)[0]
    with submitting(paths) as turn:
        resumption, context, given = _prepare(paths, request)
        on_prepared(resumption)
        clear_the_way(paths, resumption.preparation, context.scheduler)
        keep_spec(paths, given)
        number = write_plan(context, resumption.plan)
        record_provenance(context, number, request.overrides)
        connections = resumption.preparation.connections
        jobs = submit_plan(context, resumption.plan, connections, turn=turn, on_job=on_job)
    return replace(resumption, jobs=tuple(jobs))


def _prepare(paths: RunPaths, request: ResumeRequest) -> tuple[Resumption, RunContext, GivenSpec]:
    update, file = request.update_spec, request.spec_file
    given = spec_of(paths, request.overrides, update_spec=update, spec_file=file)
    spec, profile, spec_dir = given.spec, given.profile, Path(given.spec_dir)
    code = _code(paths, spec, spec_dir, request)
    recorded = read_shell_variables(paths)
    context = run_context(paths, spec, profile, spec_dir, code.snapshot, shell_variables=recorded)
    limits = limits_of(profile)
    kept = kept_variables(recorded or {}, os.environ)
    limits = replace(limits, shell_defaults=shell_defaults(kept))
    planned = partial(make_plan, spec, profile, code_fingerprint=code.snapshot.user_fingerprint)
    stages = planned().stages
    again = slices_named(request.again, stages)
    context = replace(context, num_again=_num_again(paths, stages, again))
    preparation = prepare_resume(
        paths,
        context.scheduler,
        {stage.name: stage.fingerprint for stage in stages},
        again=again,
        act=not request.dry_run,
        afters={stage.name: {d.stage: d.kind for d in stage.after} for stage in stages},
    )
    done = replace(preparation.done, why_not=_why_not(paths, stages, preparation, again))
    resources, adjustments = _adjusted(paths, given, stages, preparation, request.overrides)
    planned = partial(planned, done=done, limits=limits, resources=resources)
    plan = planned(kinds=kinds_begun_on(paths, planned(), context.num_again))
    refuse_impossible_resume(plan, limits)
    context = replace(context, shell_variables=effective_variables(plan, profile, recorded))
    resumption = Resumption(
        paths=paths,
        plan=plan,
        preparation=preparation,
        code_changed=code.has_changed,
        spec_changed=not update and file_differs(paths),
        ours_renewed=code.ours_renewed,
        adjustments=(*_of_jobs(adjustments, plan), *kinds_kept(plan)),
        trainings=training_starts(paths, plan, context.num_again),
        spec_notes=given.notes,
        shell_notes=tuple(shell_notes(plan, profile, recorded)),
        left_out=given.loaded.left_out if given.loaded is not None else (),
    )
    return resumption, context, given


def _of_jobs(adjustments: Sequence[str], plan: Plan) -> list[str]:
    """Return the adjustments of stages that run again."""
    planned = {job.stage for job in plan.jobs}
    return [each for each in adjustments if each.partition(": ")[0] in planned]


def _adjusted(
    paths: RunPaths,
    given: GivenSpec,
    stages: Sequence[PlannedStage],
    preparation: Preparation,
    overrides: Sequence[str],
) -> tuple[dict[str, JobResources], tuple[str, ...]]:
    """Return each stage's requests after its failures, and the changes in words."""
    before = {values["name"]: values for values in read_plan_values(paths)["stages"]}
    resources: dict[str, JobResources] = {}
    said = []
    for stage in stages:
        last = before.get(stage.name, {}).get("resources", {})
        trouble = preparation.troubles.get(stage.name, NO_TROUBLE)
        if given.profile.scheduler == "local":
            trouble = replace(trouble, nodes=())  # this machine has no more
        wish = given.spec.stages[stage.name].on_resume
        resources[stage.name], changes = adjusted(
            stage.resources, wish, trouble, last, by_hand=_set_by_hand(stage, overrides)
        )
        said += [f"{stage.name}: {change}" for change in changes]
    return resources, tuple(said)


def _set_by_hand(stage: PlannedStage, overrides: Sequence[str]) -> set[str]:
    """Return the keys of `RAISED` that overrides set for a stage, by its own name or the file's."""
    return {
        key
        for key in RAISED
        for name in (stage.name, stage.origin)
        if any(sets_value(o, ("stages", name, "resources", key)) for o in overrides)
    }


def _num_again(
    paths: RunPaths, stages: Sequence[PlannedStage], again: Mapping[str, Slices]
) -> dict[str, dict[int, int]]:
    """Return by stage and slice how often resumes were asked to run it again, including this one.

    From all plans: a stage may be absent from the spec for a while.
    """
    found: dict[str, dict[int, int]] = {stage.name: {} for stage in stages}
    for number in range(1, last_plan_number(paths) + 1):
        for values in read_json(paths.plan(number))["stages"]:
            asked = {int(index): times for index, times in values.get("num_again", {}).items()}
            found.get(values["name"], {}).update(asked)
    for name, slices in again.items():
        found[name] |= {index: found[name].get(index, 0) + 1 for index in slices}
    return found


def _why_not(
    paths: RunPaths,
    stages: Sequence[PlannedStage],
    preparation: Preparation,
    again: Mapping[str, Slices],
) -> dict[str, str]:
    """Return why finished work of a stage does not count any more."""
    before = {values["name"]: values for values in read_plan_values(paths)["stages"]}
    reasons = {}
    for stage in stages:
        fields = before.get(stage.name, {}).get("fields", {})
        changed = changed_fields(fields, stage.fields) if fields else []
        if changed:
            reasons[stage.name] = f"changed: {', '.join(changed)}"
        elif again.get(stage.name):
            reasons[stage.name] = "asked for"
        elif fields and parents_of(fields) != parents_of(stage.fields):
            reasons[stage.name] = "changed: after"
        elif preparation.damaged.get(stage.name):
            reasons[stage.name] = "its output is missing or cut short"
    return reasons


@dataclass(frozen=True, kw_only=True, slots=True)
class _Code:
    snapshot: CodeSnapshot
    """Code that new jobs run."""
    has_changed: bool = False
    """True if the user's code has changed."""
    ours_renewed: bool = False


def _code(paths: RunPaths, spec: RunSpec, spec_dir: Path, request: ResumeRequest) -> _Code:
    """Return the code to use. A dry run copies none: its snapshot has only the fingerprint."""
    sources = code_sources(spec, spec_dir)
    values = read_plan_values(paths)["snapshot"]
    used = CodeSnapshot(
        folder=paths.code_snapshot(values["name"]), user_fingerprint=values["user_fingerprint"]
    )
    if request.update_code or not used.folder.is_dir():
        if request.dry_run:
            return _Code(snapshot=replace(used, user_fingerprint=tree_fingerprint(sources)))
        return _Code(snapshot=take_snapshot(paths.code_dir, sources))
    renew = not used.reads_our_orders
    return _Code(
        snapshot=renew_ours(paths.code_dir, used) if renew and not request.dry_run else used,
        has_changed=tree_fingerprint(sources) != used.user_fingerprint,
        ours_renewed=renew,
    )
