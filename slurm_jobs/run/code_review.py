"""Review of a run's work after a change of the user's code: which slices used what has changed.

The code of a slice is what its attempt opened, as the worker recorded it. Files that are not Python
count for every function, because a program or a library may read them unseen. A `shell:` stage
depends on the paths under the spec's `code:`, and on no module that only functions import.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.run.code_tree import CodeTree
from slurm_jobs.run.snapshot import own_functions, top_module, uses_own_code
from slurm_jobs.run.static_imports import direct_imports, module_files, static_imports
from slurm_jobs.run_folder.ledger import Intent, latest_intents
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_completion
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.run_folder.used_code import read_used_files
from slurm_jobs.spec.model import RunSpec, Stage
from slurm_jobs.status.slice_status import completion_of


@dataclass(frozen=True, kw_only=True, slots=True)
class _Then:
    """Code of earlier jobs."""

    tree: CodeTree
    differing: frozenset[str]
    """Files that are not the same now."""


class CodeReview:
    """Comparison of the code that a run's jobs used with the code that new jobs would run."""

    def __init__(
        self,
        paths: RunPaths,
        run: RunRecords,
        spec: RunSpec,
        now: CodeTree,
        *,
        snapshot: str | None = None,
    ) -> None:
        """Compare with `now`; `snapshot` is the name of its snapshot, None before there is one."""
        self._snapshot = snapshot
        self._paths = paths
        self._run = run
        self._spec = spec
        self._now = now
        self._folders: dict[str, str] = {}
        """Names of the snapshots of jobs, by token."""
        self._thens: dict[str, _Then] = {}
        self._used: dict[tuple[str, str], frozenset[str] | None] = {}

    def changed(self, name: str) -> dict[int, tuple[str, ...]]:
        """Return the changed files of each slice of a stage that used any, or will use any.

        A slice that is not complete may use what its stage's function imports.

        Raises:
            OSError: a record cannot be read.
        """
        stage = self._spec.stages[name]
        if not uses_own_code(stage):
            return {}
        changed: dict[int, tuple[str, ...]] = {}
        for index, intent in latest_intents(self._run.intents, name).items():
            then = self._then(intent)
            files = self._of_slice(name, stage, index, intent, then) if then.differing else ()
            if files:
                changed[index] = files
        return changed

    def _of_slice(
        self, name: str, stage: Stage, index: int, intent: Intent, then: _Then
    ) -> tuple[str, ...]:
        if stage.run is None:
            return tuple(sorted(f for f in then.differing if self._is_of_commands(f)))
        completion = completion_of(index, intent, self._run.records[name])
        if completion is None:
            used = _before_the_end(stage.run, then.tree)
        else:
            used_code = read_completion(self._paths, name, completion).used_code
            used = None if used_code is None else self._used_files(name, used_code)
        entry = stage.run.partition(":")[0]
        return changed_files(used, then.tree, self._now, then.differing, entry=entry)

    def _is_of_commands(self, file: str) -> bool:
        """Check whether a `shell:` command depends on a file: any but a module of a function.

        An earlier `code:` is not known, and what is no module came from there.
        """
        top = file.partition("/")[0]
        modules = {top_module(run) for run in own_functions(self._spec)}
        is_named = top in {Path(path).name for path in self._spec.code}
        return is_named or top.removesuffix(".py") not in modules

    def _then(self, intent: Intent) -> _Then:
        if intent.token not in self._folders:  # one order for thousands of slices
            order = read_order(self._paths.job_json(intent.token))
            self._folders[intent.token] = Path(order.start_script).parent.name
        folder = self._folders[intent.token]
        if folder == self._snapshot:
            return _Then(tree=self._now, differing=frozenset())
        if folder not in self._thens:
            try:
                tree = CodeTree.of_snapshot(self._paths.code_snapshot(folder))
            except FileNotFoundError:  # what it was is unknown, so all of it may have changed
                tree = CodeTree({})
            self._thens[folder] = _Then(tree=tree, differing=tree.differing(self._now))
        return self._thens[folder]

    def _used_files(self, stage: str, used_code: str) -> frozenset[str] | None:
        if (stage, used_code) not in self._used:
            self._used[stage, used_code] = read_used_files(self._paths, stage, used_code)
        return self._used[stage, used_code]


def _before_the_end(run: str, tree: CodeTree) -> frozenset[str] | None:
    """Return what a function will use, by its modules' text; None if that does not show it."""
    starts = [file for file in module_files(run.partition(":")[0]) if file in tree.files]
    imports = static_imports(tree, starts)
    return imports.files if starts and imports.are_complete else None


def changed_files(
    used: frozenset[str] | None,
    then: CodeTree,
    now: CodeTree,
    differing: Collection[str],
    *,
    entry: str = "",
) -> tuple[str, ...]:
    """Return which files of an attempt's code have changed since, sorted.

    Args:
        used: names of the files that it opened; None for all, or if they are not known.
        then: the code that it ran.
        now: the code as it is now.
        differing: names of the files that differ between the two.
        entry: module of the stage's function.
    """
    if used is None:
        return tuple(sorted(differing))
    changed = {name for name in differing if name in used or not name.endswith(".py")}
    new = {name for name in differing if name not in then.files} - changed
    if new:  # it may take the place of a module that was found elsewhere, or nowhere
        imports = direct_imports(now, used)
        imported = imports.files | set(module_files(entry))
        changed |= new & imported if imports.are_complete else new
    return tuple(sorted(changed))
