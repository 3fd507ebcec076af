"""Submit what is missing of a run, and nothing else.

A resume uses the spec and the code that the run was submitted with. `--set`
may change the spec (more memory, another time limit), `--update-code` takes
the code as it is now; what has become another stage's work by that runs again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError
from slurm_jobs.common.files import read_json, write_json_atomic
from slurm_jobs.operations.load import code_sources
from slurm_jobs.operations.submit import OnJob, run_context
from slurm_jobs.plan import Plan, make_plan
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.resume import Preparation, clear_the_way, prepare_resume
from slurm_jobs.run.snapshot import CodeSnapshot, take_snapshot, tree_fingerprint
from slurm_jobs.run.store import read_meta, read_plan_values
from slurm_jobs.run.submission import RunContext, SubmittedJob, submit_plan, write_plan
from slurm_jobs.run.turns import submitting
from slurm_jobs.spec.loader import Files, load_spec
from slurm_jobs.spec.model import RunSpec

FIXED = ("name", "cluster", "runs_dir")
"""Keys that a run keeps for good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumption:
    """What a resume does, or did."""

    paths: RunPaths
    plan: Plan
    preparation: Preparation
    code_changed: bool
    """The user's code differs from what this resume used."""
    jobs: tuple[SubmittedJob, ...] = ()


def resume(
    run_dir: Path,
    *,
    overrides: Sequence[str] = (),
    update_code: bool = False,
    dry_run: bool = False,
    on_prepared: Callable[[Resumption], None] = lambda _resumption: None,
    on_job: OnJob = lambda _job: None,
) -> Resumption:
    """Submit what is missing; `dry_run` only says what that is.

    Raises:
        SpecError: an override is wrong.
        InputError: an override changes what a run keeps for good.
        RunFailedError: another command is submitting for this run.
        SchedulerError: the scheduler could not be asked, or refused a job.
    """
    paths = RunPaths(run_dir)
    read_meta(paths)
    if dry_run:
        return _prepare(paths, overrides, update_code=update_code, act=False)[0]
    with submitting(paths):
        resumption, context, spec = _prepare(paths, overrides, update_code=update_code, act=True)
        on_prepared(resumption)
        clear_the_way(resumption.preparation, context.scheduler)
        write_json_atomic(paths.resolved_spec, spec.model_dump(mode="json"))
        write_plan(paths, resumption.plan, context.snapshot)
        connections = resumption.preparation.connections
        jobs = submit_plan(context, resumption.plan, connections, on_job=on_job)
    return Resumption(
        paths=paths,
        plan=resumption.plan,
        preparation=resumption.preparation,
        code_changed=resumption.code_changed,
        jobs=tuple(jobs),
    )


def _prepare(
    paths: RunPaths, overrides: Sequence[str], *, update_code: bool, act: bool
) -> tuple[Resumption, RunContext, RunSpec]:
    origin = read_json(paths.spec_origin)
    profile = ClusterProfile.model_validate(origin["profile"])
    spec = changed_spec(paths, origin, overrides)
    spec_dir = Path(origin["spec_dir"])
    snapshot, code_changed = _snapshot(paths, spec, spec_dir, update_code=update_code)
    context = run_context(paths, spec, profile, spec_dir, snapshot)
    code = snapshot.user_fingerprint
    fingerprints = {
        stage.name: stage.fingerprint
        for stage in make_plan(spec, profile, code_fingerprint=code).stages
    }
    preparation = prepare_resume(paths, context.scheduler, fingerprints, act=act)
    plan = make_plan(spec, profile, code_fingerprint=code, done=preparation.done)
    resumption = Resumption(
        paths=paths, plan=plan, preparation=preparation, code_changed=code_changed
    )
    return resumption, context, spec


def changed_spec(paths: RunPaths, origin: Mapping[str, Any], overrides: Sequence[str]) -> RunSpec:
    """The run's spec with `overrides`; files are not looked for again, they may have served.

    Raises:
        SpecError: an override is wrong.
        InputError: an override changes what a run keeps for good.
    """
    text = paths.resolved_spec.read_text(encoding="utf-8")
    if not overrides:
        return RunSpec.model_validate_json(text, strict=True)
    for override in overrides:
        key = override.partition("=")[0].partition(".")[0]
        if key in FIXED:
            message = f"--set {override}: a run keeps its `{key}`; submit the spec anew"
            raise InputError(message)

    def read_text(file: str) -> str:
        if file == origin["spec_file"]:
            return text
        if file.endswith((".yaml", ".yml")):
            return "{}"  # the cluster profile: the run's own is used
        raise FileNotFoundError(file)

    files = Files(read_text=read_text, exists=lambda _file: True, variables=os.environ)
    return load_spec(origin["spec_file"], files, overrides=overrides).spec


def _snapshot(
    paths: RunPaths, spec: RunSpec, spec_dir: Path, *, update_code: bool
) -> tuple[CodeSnapshot, bool]:
    """The code to use, and whether the user's own now differs from it."""
    sources = code_sources(spec, spec_dir)
    values = read_plan_values(paths)["snapshot"]
    used = CodeSnapshot(
        folder=paths.code_snapshot(values["name"]), user_fingerprint=values["user_fingerprint"]
    )
    if update_code or not used.folder.is_dir():
        return take_snapshot(paths.code_dir, sources), False
    return used, tree_fingerprint(sources) != used.user_fingerprint
