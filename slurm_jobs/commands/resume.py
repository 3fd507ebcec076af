"""Submission of the missing work of a run, and nothing else.

A resume uses the run's own spec and code. `--set` changes the spec (more memory, another time
limit); `--update-spec` and `--update-code` take the current file and code. A stage whose work is
changed by that runs again, and so does what `--again` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from slurm_jobs.commands.cleaned_run import refuse_missing_input, refuse_unfinished_clean
from slurm_jobs.commands.kept_work import (
    NOTHING_KEPT,
    KeptWork,
    RepeatedWork,
    kept_work,
    repeated_work,
)
from slurm_jobs.commands.read_spec import load
from slurm_jobs.commands.resume_code import code_of_resume
from slurm_jobs.commands.resume_reasons import unchanged_code, why_not_complete
from slurm_jobs.commands.slice_requests import (
    all_slice_overrides,
    plain_overrides,
    request_texts,
    slice_requests,
    with_kinds,
)
from slurm_jobs.commands.submit import (
    OnJob,
    effective_variables,
    limits_of,
    profile_of,
    refuse_impossible_resume,
    run_context,
    shell_notes,
)
from slurm_jobs.commands.training_starts import Start, training_starts
from slurm_jobs.dependencies import Slices
from slurm_jobs.plan import (
    Plan,
    PlannedStage,
    make_plan,
    without_new_defaults,
)
from slurm_jobs.run.code_review import CodeReview
from slurm_jobs.run.doubts import doubts_text
from slurm_jobs.run.observe import refuse_elsewhere, scheduler_of, status_of
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run.resume import (
    NO_TROUBLE,
    RAISED,
    Preparation,
    adjusted,
    adopt_lost_jobs,
    clear_the_way,
    prepare_resume,
)
from slurm_jobs.run.submission import (
    RunContext,
    SubmittedJob,
    submit_plan,
    write_plan,
)
from slurm_jobs.run_folder.cleanings import cleaned_note
from slurm_jobs.run_folder.ledger import (
    Intent,
    append_entry,
    is_perhaps_submitting,
    latest_intents,
    read_ledger,
    submitting,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec, write_resolved_spec
from slurm_jobs.run_folder.run_records import (
    RunRecords,
    kind_begun_on,
    last_plan_number,
    read_meta,
    read_plan_values,
    read_run,
    read_shell_variables,
    stages_named,
)
from slurm_jobs.schedulers.protocol import LIVING_STATES
from slurm_jobs.schedulers.slurm_environment import kept_variables, shell_defaults
from slurm_jobs.shared.configs.stages import TUNE_RUN
from slurm_jobs.shared.errors import (
    FileError,
    InputError,
    PathExpansionError,
    SchedulerError,
    SpecError,
)
from slurm_jobs.shared.expand import expand_path, expand_text
from slurm_jobs.shared.files import (
    parse_ranges,
    ranges_text,
    read_json,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.shared.job_key import JobKey
from slurm_jobs.shared.records import JobResources
from slurm_jobs.shared.redact import hidden_setting
from slurm_jobs.shared.regular_files import read_text
from slurm_jobs.spec.graph import LoadedSpec
from slurm_jobs.spec.load import load_document
from slurm_jobs.spec.matrix import with_changed_matrices
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides import (
    apply_overrides,
    override_problems,
    sets_value,
    source_of,
    steps_of,
)
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Files, absolute
from slurm_jobs.spec.yaml import YamlDocument
from slurm_jobs.status import RunStatus, SliceStatus

# Slices that the user requests to run again, complete or not.


def slices_named(texts: Sequence[str], stages: Sequence[PlannedStage]) -> dict[str, Slices]:
    """Return the slices that `STAGE` or `STAGE:0-3,7` select, by stage; see `stages_named`.

    Raises:
        InputError: there is no such stage or slice.
    """
    numbers = {stage.name: stage.num_slices for stage in stages}
    origins = {stage.name: stage.origin for stage in stages}
    chosen: dict[str, Slices] = {}
    for text in texts:
        called, colon, ranges = text.partition(":")
        for name in stages_named(called, origins, where=f"--again {text}: "):
            slices: Sequence[int] = () if colon else range(numbers[name])
            with suppress(ValueError):
                slices = slices or parse_ranges(ranges, below=numbers[name])
            if not slices:
                last = numbers[name] - 1
                message = f"--again {text}: `{name}` has the slices 0 to {last}: {name}:0-{last}"
                raise InputError(message)
            chosen[name] = chosen.get(name, frozenset()) | frozenset(slices)
    return chosen


# Cancel a run's jobs, or those of one stage.


def cancel(run_dir: Path, *, stage: str | None = None) -> list[str]:
    """Cancel all jobs of a run, or of one stage, that have not ended.

    The name that a stage with a matrix has in the file means all of its combinations.

    Returns:
        The ids that the scheduler was asked to cancel.

    Raises:
        InputError: there is no such stage, or the run's jobs belong to another cluster or user.
        SchedulerError: the scheduler could not be queried, or did not say whether some jobs live;
            their cancellation is recorded, and they do no work if they still start.
        FileError: the jobs were cancelled, and this could not be recorded.
    """
    paths, run, stages = _selected(run_dir, stage)
    try:
        scheduler = scheduler_of(paths)
        with submitting(paths):
            adopt_lost_jobs(paths, run, scheduler)
            chosen = _to_cancel(run_dir, stages)
            for intent in chosen.intents:
                append_entry(paths.ledger_dir, "cancelled", intent.token, {})
            if chosen.jobs:
                scheduler.cancel(chosen.jobs)
    except OSError as error:  # a full disk must not prevent ending jobs
        jobs = _to_cancel(run_dir, stages).jobs
        scheduler_of(paths).cancel(jobs)
        message = (
            f"the scheduler was asked to cancel {_ids(jobs)}, but this could not "
            f"be recorded: {error}"
        )
        raise FileError(message) from error
    if chosen.silence:
        message = (
            f"cancelled: {_ids(chosen.jobs)}. It is unknown whether "
            f"{' '.join(chosen.unseen)} still run, and they were not cancelled "
            f"({chosen.silence}); if they start, they do no work. Run the same command again "
            "when Slurm answers"
        )
        raise SchedulerError(message)
    return [job.job_id for job in chosen.jobs]


def _ids(jobs: Sequence[JobKey]) -> str:
    return " ".join(job.job_id for job in jobs) or "nothing"


def is_anything_to_cancel(run_dir: Path, *, stage: str | None = None) -> bool:
    """Check whether `cancel` would find unfinished work; read-only.

    Raises:
        InputError: see `cancel`.
        SchedulerError: the scheduler could not be queried.
    """
    paths, _, stages = _selected(run_dir, stage)
    # Another command's pending submission is not visible yet; `cancel` names that command.
    return is_perhaps_submitting(read_ledger(paths.ledger_dir)) or bool(
        _to_cancel(run_dir, stages).intents
    )


def _selected(run_dir: Path, stage: str | None) -> tuple[RunPaths, RunRecords, list[str]]:
    """Return a run that this user may change here, and its selected stages."""
    paths = RunPaths(run_dir)
    run = read_run(run_dir)
    origins = {s.name: s.origin for s in run.stages}
    stages = list(origins)
    if stage is not None:
        stages = stages_named(stage, origins, where=f"run {run.meta.run_id}: ")
    refuse_elsewhere(paths, run.meta)
    return paths, run, stages


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chosen:
    """Jobs to cancel."""

    intents: list[Intent]
    """Intents of all work that may be unfinished: if such a job still starts, it does no work."""
    jobs: list[JobKey]
    """Jobs that the scheduler has just reported alive. Another job with such an id may belong to
    another user by now: Slurm reuses ids."""
    unseen: list[str]
    """Ids of the other jobs that may be unfinished."""
    silence: str
    """Reason why it is unknown whether the unseen jobs are alive; empty if that is known."""


def _to_cancel(run_dir: Path, stages: list[str]) -> _Chosen:
    """Return the newest intents of unfinished slices."""
    status = status_of(run_dir, acts=True)
    run = read_run(run_dir)
    chosen: dict[str, Intent] = {}
    living: set[str] = set()
    for name in stages:
        newest = latest_intents(run.intents, name)
        for part in status.stage(name).slices:
            is_unfinished = part.status in {"running", "waiting", "unknown"} or (
                part.status == "stranded" and part.state in LIVING_STATES
            )
            intent = newest.get(part.slice_index)
            if is_unfinished and intent is not None and intent.refused is None:
                chosen[intent.token] = intent
                # The local scheduler's ids are unique to the run.
                is_confirmed = part.state in LIVING_STATES and not _is_doubted(part, status)
                if is_confirmed or run.meta.scheduler == "local":
                    living.add(intent.token)
    jobs = {token: intent.job for token, intent in chosen.items() if intent.job is not None}
    silence = "" if status.knows_the_living else "; ".join(status.problems)
    if status.doubts and not silence:
        silence = doubts_text(run, status.doubts, status.problems)
    if silence and not jobs:
        raise SchedulerError(silence)
    unseen = [job.job_id for token, job in jobs.items() if token not in living]
    return _Chosen(
        intents=list(chosen.values()),
        jobs=[job for token, job in jobs.items() if token in living],
        unseen=unseen,
        silence=silence if unseen else "",
    )


def _is_doubted(part: SliceStatus, status: RunStatus) -> bool:
    """Check whether it is open if the job of a slice lives: another job may have its id."""
    return part.job is not None and not status.doubts.keys().isdisjoint((part.job, part.job.job))


# Types of GPU of slices that a resume runs: each continues on the type that it started on.


def kinds_begun_on(
    paths: RunPaths, plan: Plan, num_again: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, str]]:
    """Return the GPU type on which each slice that runs again was started, by stage and slice.

    Only for stages that accept several types, and only types that they still accept.
    """
    kinds: dict[str, dict[int, str]] = {}
    for job in plan.jobs:
        stage = plan.stage(job.stage)
        if len(stage.resources.gpu) < 2:
            continue
        for index in job.slices:
            again = num_again.get(stage.name, {})
            kind = kind_begun_on(paths, stage.name, stage.fingerprint, again, (index,))
            if kind in stage.resources.gpu:
                kinds.setdefault(stage.name, {})[index] = kind
    return kinds


def kinds_kept(plan: Plan) -> list[str]:
    """Return in words which single types the plan's jobs request."""
    kept: dict[str, dict[str, list[int]]] = {}
    for job in plan.jobs:
        kept.setdefault(job.stage, {}).setdefault(job.resources.gpu_kept, []).extend(job.slices)
    texts = []
    for stage, kinds in kept.items():
        for kind, slices in kinds.items():
            which = f" for slices {ranges_text(sorted(slices))}" if len(kinds) > 1 else ""
            texts += [f"{stage}: gpu {kind} only{which} (started on it)"] if kind else []
    return texts


# Spec that a resume uses: the run's own with overrides, or its current file.


FIXED = ("name", "cluster", "runs_dir")
"""Keys that a run cannot change."""
_EXPANDED = (
    "the combinations of this run are stages by now; change the axes in the spec's file, and "
    "resume with --update-spec"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenSpec:
    """Spec that a resume uses."""

    spec: RunSpec
    profile: ClusterProfile
    spec_dir: str
    overrides: tuple[str, ...]
    """All overrides of the run that still apply to it."""
    slice_overrides: tuple[str, ...] = ()
    """Overrides for single slices."""
    loaded: LoadedSpec | None = None
    """Set if the file was read again."""
    notes: tuple[str, ...] = ()
    """Warnings: about the file if it was read again, otherwise about the current overrides."""


def spec_of(
    paths: RunPaths,
    overrides: Sequence[str],
    *,
    update_spec: bool,
    spec_file: Path | None = None,
) -> GivenSpec:
    """Return the run's spec with `overrides`; without `update_spec` files are not checked again.

    Raises:
        SpecError: the file or an override is wrong.
        InputError: a fixed key of the run was changed.
    """
    for override in overrides:
        steps = steps_of(override)
        if steps[0] in FIXED:
            message = f"--set {override}: a run keeps its `{steps[0]}`; submit the spec again"
            raise InputError(message)
        if steps[0] == "stages" and steps[2:3] == ["matrix"] and not update_spec:
            message = f"--set {override}: {_EXPANDED}"
            raise InputError(message)
    origin = read_json(paths.spec_origin)
    before = spec = read_resolved_spec(paths)
    notes: tuple[str, ...] = ()
    if not update_spec:
        if overrides:
            text = read_text(paths.resolved_spec)
            spec, notes = _with_overrides(paths, text, origin, overrides)
        return GivenSpec(
            spec=without_new_defaults(spec, before),
            notes=notes,
            profile=ClusterProfile.model_validate(origin["profile"]),
            spec_dir=origin["spec_dir"],
            overrides=(*origin["overrides"], *overrides),
        )
    file = spec_file or Path(origin["spec_file"])
    if any(stage.run == TUNE_RUN for stage in before.stages.values()):
        message = f"{paths.run_dir.name} tunes a training: `slurm-jobs tune {file}` tunes it again"
        raise InputError(message)
    loaded = load(file, overrides=overrides, earlier=origin["overrides"])
    profile = profile_of(loaded)
    for key, then, now in (
        ("name", before.name, loaded.spec.name),
        ("runs_dir", before.runs_dir, loaded.spec.runs_dir),
        ("cluster", origin["profile"]["scheduler"], profile.scheduler),
    ):
        if then != now:
            message = (
                f"{loaded.file}: a run keeps its `{key}` ({then}, now {now}); submit the spec again"
            )
            raise InputError(message)
    return GivenSpec(
        spec=without_new_defaults(loaded.spec, before),
        profile=profile,
        spec_dir=loaded.spec_dir,
        overrides=loaded.overrides,
        loaded=loaded,
        notes=tuple(map(str, loaded.notes)),
    )


def _with_overrides(
    paths: RunPaths, text: str, origin: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the spec in `text` with `overrides`, and the notes that these cause.

    Raises:
        SpecError: with each problem at the overrides that cause it, because the run's values have
            no line that a user could read; problems without a cause are the run's.
    """

    def messages(chosen: Sequence[str]) -> set[str]:
        try:
            return {note.message for note in _load_with(text, origin, chosen).notes}
        except SpecError as error:
            return {problem.message for problem in error.problems}

    try:
        loaded = _load_with(text, origin, overrides)
    except SpecError as error:
        without = [messages([*overrides[:n], *overrides[n + 1 :]]) for n in range(len(overrides))]
        before = messages(())
        problems = []
        for problem in error.problems:
            pairs = zip(overrides, without, strict=True)
            causes = [override for override, left in pairs if problem.message not in left]
            source = " ".join(source_of(hidden_setting(each)) for each in causes or overrides)
            if problem.message in before:
                source = str(paths.resolved_spec)
            is_elsewhere = problem.file != origin["spec_file"]
            problems.append(
                problem if is_elsewhere else problem.changed(file=source, line=0, column=0)
            )
        raise SpecError(problems) from None
    if not loaded.notes:
        return loaded.spec, ()
    # If this version accepts the spec only with the overrides, `known` has problems, not notes.
    known = messages(())
    return loaded.spec, tuple(n.message for n in loaded.notes if n.message not in known)


def _texts_in(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, (dict, list)):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _texts_in(value)


def _load_with(text: str, origin: Mapping[str, Any], overrides: Sequence[str]) -> LoadedSpec:
    def read_text(file: str) -> str:
        if file.endswith((".yaml", ".yml")):
            return "{}"  # the cluster profile: the run's own is used
        raise FileNotFoundError(file)

    given = YamlDocument(file=origin["spec_file"], value=json.loads(text))
    expanded = set(_texts_in(given.value))

    def expand(path: str) -> str:
        return path if path in expanded else expand_path(path)

    def expand_option(text: str) -> str:
        return text if text in expanded else expand_text(text)

    changed = apply_overrides(given, overrides)
    folders = [*map(str, PurePosixPath(given.file).parents)]
    new_paths = set()
    for value in {*_texts_in(changed.value)} - expanded:
        with suppress(PathExpansionError):  # most texts are not paths
            new_paths.add(absolute(expand(value), folders[0]))
    new_paths.difference_update(folders)
    own_paths = {absolute(value, folders[0]) for value in expanded}

    def exists(file: str) -> bool:
        """Check only what the overrides name: the run's own input may be gone after its use."""
        is_new = not new_paths.isdisjoint((file, *map(str, PurePosixPath(file).parents)))
        return Path(file).exists() if is_new and file not in own_paths else True

    files = Files(read_text=read_text, exists=exists, expand=expand, expand_text=expand_option)
    document = with_changed_matrices(given, changed, lambda _name: _EXPANDED)
    problems = (*document.problems, *override_problems(document, overrides))
    document = replace(document, problems=problems)
    return load_document(document, text, files, overrides=overrides)


def file_differs(paths: RunPaths) -> bool:
    """Check whether the spec's file exists and differs from the text that the run was given last.

    This only produces a note; so an unreadable file counts as equal.
    """
    try:
        now = read_text(Path(read_json(paths.spec_origin)["spec_file"]))
        return now != read_text(paths.given_spec)
    except (OSError, UnicodeDecodeError):
        return False


def keep_spec(paths: RunPaths, given: GivenSpec) -> None:
    """Record the spec that the run has from now on, and its overrides."""
    origin = {
        **read_json(paths.spec_origin),
        "overrides": list(given.overrides),
        "slice_overrides": list(given.slice_overrides),
    }
    if given.loaded is not None:
        write_text_atomic(paths.given_spec, given.loaded.text)
        origin["profile"] = given.profile.model_dump(mode="json")
        origin["spec_file"], origin["spec_dir"] = given.loaded.file, given.loaded.spec_dir
    write_json_atomic(paths.spec_origin, origin)
    write_resolved_spec(paths, given.spec)


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
        set_by_user = {
            key
            for key in RAISED
            for name in (stage.name, stage.origin)
            for override in overrides
            if sets_value(override, ("stages", name, "resources", key))
        }
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
    for number in range(1, last_plan_number(paths) + 1):
        for values in read_json(paths.plan(number))["stages"]:
            times_again = {
                int(index): times for index, times in values.get("num_again", {}).items()
            }
            counts.get(values["name"], {}).update(times_again)
    for name, slices in again.items():
        counts[name] |= {index: counts[name].get(index, 0) + 1 for index in slices}
    return counts
