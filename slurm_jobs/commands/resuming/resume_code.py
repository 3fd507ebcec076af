"""Code that the jobs of a resume run: the run's snapshot, or a new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.run.code_files import private_files_note
from slurm_jobs.run.code_tree import CodeTree
from slurm_jobs.run.snapshot import (
    CodeSnapshot,
    code_sources,
    module_source,
    own_functions,
    renew_ours,
    take_snapshot,
    top_module,
    tree_fingerprint,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec
from slurm_jobs.run_folder.run_records import read_plan_values
from slurm_jobs.spec.checks.entry_points import entry_point_problem, uses_another_python
from slurm_jobs.spec.checks.imported_modules import ModuleReader
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeCode:
    """Code of a resume."""

    snapshot: CodeSnapshot
    tree: CodeTree
    """The user's code in it."""
    is_planned: bool = False
    """True in a dry run that takes new code: the folder of `snapshot` is the one before."""
    has_changed: bool = False
    """True if the user's code differs from the snapshot."""
    ours_renewed: bool = False
    """True if the snapshot had to get another version of slurm-jobs."""
    private_note: str | None = None
    """Which files a new copy of the user's code leaves out. None if it leaves out no file, or if
    the run keeps the copy that it has."""


def code_of_resume(
    paths: RunPaths,
    spec: RunSpec,
    spec_dir: Path,
    profile: ClusterProfile,
    *,
    update_code: bool,
    dry_run: bool,
) -> ResumeCode:
    """Return the code to use, after a check of the functions that it must have.

    A dry run copies none: its snapshot has only the fingerprint.

    Raises:
        InputError: the code lacks a function, or is not valid Python.
    """
    values = read_plan_values(paths)["snapshot"]
    used = CodeSnapshot(
        folder=paths.code_snapshot(values["name"]), user_fingerprint=values["user_fingerprint"]
    )
    takes_new = update_code or not used.folder.is_dir()
    if takes_new:
        problems = list(_problems_of_new_code(spec, spec_dir, profile, used.folder / "user"))
    else:
        before = read_resolved_spec(paths)
        # The run's earlier functions were checked when it got them.
        new = dict.fromkeys(run for run in own_functions(spec) if run not in own_functions(before))
        problems = []
        for run in new:
            problem = _snapshot_problem(run, spec, spec_dir, profile, used.folder / "user")
            problems += [] if problem is None else [f"`run: {run}`: {problem}"]
    if problems:
        raise InputError("\n".join(dict.fromkeys(problems)))
    sources = code_sources(spec, spec_dir)
    if takes_new:
        note = private_files_note(sources)
        if dry_run:
            planned = replace(used, user_fingerprint=tree_fingerprint(sources))
            return ResumeCode(
                snapshot=planned,
                tree=CodeTree.of_sources(sources),
                is_planned=True,
                private_note=note,
            )
        taken = take_snapshot(paths.code_dir, sources)
        return ResumeCode(
            snapshot=taken, tree=CodeTree.of_snapshot(taken.folder), private_note=note
        )
    has_changed = tree_fingerprint(sources) != used.user_fingerprint
    renew = not used.reads_our_orders
    if renew and not dry_run:
        used = renew_ours(paths.code_dir, used)
    tree = CodeTree.of_snapshot(used.folder)
    return ResumeCode(snapshot=used, tree=tree, has_changed=has_changed, ours_renewed=renew)


def _problems_of_new_code(
    spec: RunSpec, spec_dir: Path, profile: ClusterProfile, used: Path
) -> Iterator[str]:
    """Yield what the current code lacks; `used` is the user's code in the run's snapshot."""
    functions = own_functions(spec)
    for run in functions:
        problem = _problem_in_current_code(run, spec, spec_dir, profile)
        if problem is not None:
            yield problem
    for module in map(top_module, functions):
        if module_source(module, used) and _current_source(module, spec, spec_dir) is None:
            yield f"the module `{module}` of this run is no longer in {spec_dir}"
    for path in spec.code:
        if not Path(path).exists():
            yield f"code: nothing at {path}"


def _snapshot_problem(
    run: str, spec: RunSpec, spec_dir: Path, profile: ClusterProfile, used: Path
) -> str | None:
    """Return why the run's snapshot cannot give a function that the run did not have before.

    A module that is in neither code belongs to the stage's Python, unless a similar one exists.
    """
    module = top_module(run)
    has_current = _current_source(module, spec, spec_dir) is not None
    if module_source(module, used) is not None:
        problem = _problem_in(run, used, spec, profile)
        if problem is not None:
            problem += "; a resume runs the copy of your code that this run has"
    elif has_current:
        problem = (
            f"the copy of your code that this run has lacks the module `{module}`, and a resume "
            "runs this copy"
        )
    else:
        near = did_you_mean(module, {path.stem for path in used.iterdir()})
        if not near or _uses_another_python(run, spec, profile) or disk_files().has_module(module):
            return None
        return f"there is no module `{module}` in the code of this run or in this Python{near}"
    if problem is None or not has_current or _problem_in_current_code(run, spec, spec_dir, profile):
        return problem
    return f"{problem}; --update-code takes your code as it is now"


def _problem_in_current_code(
    run: str, spec: RunSpec, spec_dir: Path, profile: ClusterProfile
) -> str | None:
    source = _current_source(top_module(run), spec, spec_dir)
    return None if source is None else _problem_in(run, source.parent, spec, profile)


def _problem_in(run: str, folder: Path, spec: RunSpec, profile: ClusterProfile) -> str | None:
    follows_imports = not _uses_another_python(run, spec, profile)
    modules = ModuleReader(str(folder), disk_files())
    return entry_point_problem(run, modules, follows_imports=follows_imports)


def _uses_another_python(run: str, spec: RunSpec, profile: ClusterProfile) -> bool:
    settings = [stage.model_dump() for stage in spec.stages.values() if stage.run == run]
    settings += [spec.model_dump(exclude={"stages"}), profile.model_dump()]
    return uses_another_python(settings)


def _current_source(module: str, spec: RunSpec, spec_dir: Path) -> Path | None:
    """Return the file or folder of a module next to the spec or under `code:`; None without."""
    folders = [spec_dir, *(Path(path).parent for path in spec.code)]
    listed = {spec_dir / f"{module}.py", spec_dir / module, *map(Path, spec.code)}
    sources = (module_source(module, folder) for folder in folders)
    return next((source for source in sources if source in listed), None)
