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
from typing import Any

from slurm_jobs.commands.cluster_limits import limits_of, refuse_impossible_resume
from slurm_jobs.commands.resuming.cleaned_run import refuse_missing_input, refuse_unfinished_clean
from slurm_jobs.commands.resuming.given_spec import GivenSpec, file_differs, keep_spec, spec_of
from slurm_jobs.commands.resuming.kept_gpus import kinds_begun_on, kinds_kept
from slurm_jobs.commands.resuming.kept_work import (
    NOTHING_KEPT,
    KeptWork,
    RepeatedWork,
    kept_work,
    repeated_work,
)
from slurm_jobs.commands.resuming.named_slices import slices_named
from slurm_jobs.commands.resuming.resume_code import code_of_resume
from slurm_jobs.commands.resuming.resume_reasons import unchanged_code, why_not_complete
from slurm_jobs.commands.resuming.slice_requests import (
    all_slice_overrides,
    plain_overrides,
    request_texts,
    slice_requests,
    with_kinds,
)
from slurm_jobs.commands.resuming.training_starts import Start, training_starts
from slurm_jobs.commands.resuming.unused_settings import unused_settings
from slurm_jobs.commands.shell_variables import effective_variables, shell_notes
from slurm_jobs.commands.submit import OnJob, run_context
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan, PlannedStage
from slurm_jobs.plan.stage_dependencies import Slices
from slurm_jobs.run.code_review import CodeReview
from slurm_jobs.run.home import refuse_elsewhere
from slurm_jobs.run.parents import SubmittedJob
from slurm_jobs.run.prepare_resume import (
    NO_TROUBLE,
    RAISED,
    Preparation,
    adjusted,
    clear_the_way,
    prepare_resume,
)
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run.submission import RunContext, submit_plan, write_plan
from slurm_jobs.run_folder.cleanings import cleaned_note
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec
from slurm_jobs.run_folder.run_records import (
    read_all_plans,
    read_meta,
    read_plan_values,
    read_run,
    read_shell_variables,
)
from slurm_jobs.run_folder.submission_lock import submitting
from slurm_jobs.schedulers.slurm_environment import kept_variables, shell_defaults
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides.apply import sets_value
from slurm_jobs.spec.profile import ClusterProfile


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
    private_note: str | None = None
    """Which files a new copy of the user's code leaves out. None if it leaves out no file, or if
    the run keeps the copy that it has."""
    cleaned_note: str | None = None
    """What `clean` removed from the run. None if nothing."""
    left_out: tuple[str, ...] = ()
    """Earlier overrides whose stages are no longer in the current file, in words."""
    shell_notes: tuple[str, ...] = ()
    """SBATCH_... variables, of this shell and of the submission: those that apply and those
    ignored."""
    unused_settings: tuple[str, ...] = ()
    """Notes on overrides of this request that none of its jobs uses."""
    kept: KeptWork = NOTHING_KEPT
    """Work that counts although the code has changed."""
    repeated: Mapping[str, RepeatedWork] = field(default_factory=dict)
    """Complete work that runs again, by stage."""
    asked_again: Mapping[str, Slices] = field(default_factory=dict)
    """Slices that the request names to run again, by stage."""
    jobs: tuple[SubmittedJob, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeRequest:
    """Options of a resume."""

    overrides: Sequence[str] = ()
    """`KEY.KEY=VALUE`, as for `--set`."""
    update_code: bool = False
    """Use the user's current code."""
    keep_complete: bool = False
    """Keep complete slices although the code that they used has changed."""
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

    `on_prepared` is called with the plan before anything happens, not in a dry run; `on_job` with
    each job that the scheduler accepted.

    Raises:
        SpecError: the spec or an override is wrong.
        InputError: a fixed key of the run was changed, `again` names no stage or slice
            of it, the cluster could never run what is missing, or its jobs belong to another
            cluster or user.
        RunFailedError: another command is submitting for this run.
        SchedulerError: the scheduler could not be queried, or refused a job.
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
        record_provenance(
            paths,
            Path(context.spec_dir),
            number,
            request.overrides,
            scheduler=context.scheduler.name,
            snapshot=context.snapshot.folder.name,
        )
        connections = resumption.preparation.connections
        jobs = submit_plan(context, resumption.plan, connections, turn=turn, on_job=on_job)
    return replace(resumption, jobs=tuple(jobs))


def _prepare(paths: RunPaths, request: ResumeRequest) -> tuple[Resumption, RunContext, GivenSpec]:
    refuse_unfinished_clean(paths)
    update, file = request.update_spec, request.spec_file
    plain = plain_overrides(request.overrides)
    given = spec_of(paths, plain, update_spec=update, spec_file=file)
    spec, profile, spec_dir = given.spec, given.profile, Path(given.spec_dir)
    code = code_of_resume(
        paths,
        spec,
        spec_dir,
        profile,
        update_code=request.update_code,
        dry_run=request.dry_run,
    )
    recorded = read_shell_variables(paths)
    context = run_context(paths, spec, profile, spec_dir, code.snapshot, shell_variables=recorded)
    variables = kept_variables(recorded or {}, os.environ)
    limits = replace(limits_of(profile), shell_defaults=shell_defaults(variables))
    before = {values["name"]: values for values in read_plan_values(paths)["stages"]}
    run = read_run(paths.run_dir, also=tuple(spec.stages))
    taken = None if code.is_planned else code.snapshot.folder.name
    review = CodeReview(paths, run, spec, code.tree, snapshot=taken)
    changed = {name: review.changed(name) for name in spec.stages}
    planned = partial(
        make_plan,
        spec,
        profile,
        code_fingerprint=code.snapshot.user_fingerprint,
        kept_code=unchanged_code(before, changed),
    )
    stages = planned().stages
    again = slices_named(request.again, stages)
    kept = kept_work(
        paths,
        run,
        spec,
        stages,
        changed,
        keep_complete=request.keep_complete,
        update_code=request.update_code,
    )
    context = replace(
        context, num_again=_num_again(paths, stages, again), other_code=kept.other_code
    )
    void = {
        name: again.get(name, frozenset()) | kept.void.get(name, frozenset())
        for name in (*again, *kept.void)
    }
    preparation = prepare_resume(
        paths,
        context.scheduler,
        {stage.name: stage.fingerprint for stage in stages},
        again=void,
        kept=kept.tokens,
        act=not request.dry_run,
        afters={stage.name: {d.stage: d.kind for d in stage.after} for stage in stages},
    )
    why_not = why_not_complete(stages, before, preparation, again, kept.outdated)
    done = replace(preparation.done, why_not=why_not)
    resources, adjustments = _adjusted_resources(
        spec,
        profile,
        stages,
        before=before,
        preparation=preparation,
        overrides=plain,
    )
    planned = partial(planned, done=done, limits=limits, resources=resources)
    slice_overrides = all_slice_overrides(paths, request.overrides, stages)
    given = replace(given, slice_overrides=slice_overrides)
    own = slice_requests(slice_overrides, stages)
    kinds = kinds_begun_on(paths, planned(), context.num_again)
    plan = planned(requests=with_kinds(own, kinds))
    refuse_missing_input(paths, plan)
    refuse_impossible_resume(plan, limits)
    context = replace(context, shell_variables=effective_variables(plan, profile, recorded))
    submitted = {job.stage for job in plan.jobs}
    resumption = Resumption(
        paths=paths,
        plan=plan,
        preparation=preparation,
        code_changed=code.has_changed,
        spec_changed=not update and file_differs(paths),
        ours_renewed=code.ours_renewed,
        adjustments=(
            *[text for name, texts in adjustments.items() if name in submitted for text in texts],
            *kinds_kept(plan),
            *request_texts(plan, own),
        ),
        trainings=training_starts(paths, plan, context.num_again),
        spec_notes=given.notes,
        private_note=code.private_note,
        cleaned_note=cleaned_note(paths),
        shell_notes=tuple(shell_notes(plan, profile, recorded)),
        left_out=given.loaded.left_out if given.loaded is not None else (),
        unused_settings=unused_settings(
            read_resolved_spec(paths), spec, request.overrides, plan, preparation.done.active
        ),
        kept=kept,
        repeated=repeated_work(paths, run, _slices_by_stage(plan)),
        asked_again=again,
    )
    return resumption, context, given


def _slices_by_stage(plan: Plan) -> dict[str, Slices]:
    slices: dict[str, Slices] = {}
    for job in plan.jobs:
        slices[job.stage] = slices.get(job.stage, frozenset()).union(job.slices)
    return slices


def _adjusted_resources(
    spec: RunSpec,
    profile: ClusterProfile,
    stages: Sequence[PlannedStage],
    *,
    before: Mapping[str, Mapping[str, Any]],
    preparation: Preparation,
    overrides: Sequence[str],
) -> tuple[dict[str, JobResources], dict[str, list[str]]]:
    """Return by stage what its jobs request after failures, and how that differs from before."""
    resources: dict[str, JobResources] = {}
    adjustments: dict[str, list[str]] = {}
    for stage in stages:
        trouble = preparation.troubles.get(stage.name, NO_TROUBLE)
        if profile.scheduler == "local":
            trouble = replace(trouble, nodes=())  # this machine has no more
        set_by_user = set()
        for key in RAISED:
            paths = [("stages", name, "resources", key) for name in (stage.name, stage.origin)]
            if any(sets_value(override, path) for override in overrides for path in paths):
                set_by_user.add(key)
        resources[stage.name], changes = adjusted(
            stage.resources,
            spec.stages[stage.name].on_resume,
            trouble,
            before.get(stage.name, {}).get("resources", {}),
            by_hand=set_by_user,
        )
        adjustments[stage.name] = [f"{stage.name}: {change}" for change in changes]
    return resources, adjustments


def _num_again(
    paths: RunPaths, stages: Sequence[PlannedStage], again: Mapping[str, Slices]
) -> dict[str, dict[int, int]]:
    """Return by stage and slice how often resumes were asked to run it again, including this one.

    From all plans: a stage may be absent from the spec for a while.
    """
    counts: dict[str, dict[int, int]] = {stage.name: {} for stage in stages}
    for plan in read_all_plans(paths):
        for values in plan["stages"]:
            times_again = {
                int(index): times for index, times in values.get("num_again", {}).items()
            }
            counts.get(values["name"], {}).update(times_again)
    for name, slices in again.items():
        counts[name] |= {index: counts[name].get(index, 0) + 1 for index in slices}
    return counts
