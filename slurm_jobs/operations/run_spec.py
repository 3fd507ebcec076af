"""Spec that a resume uses: the run's own with overrides, or its current file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError, Problem, SpecError
from slurm_jobs.common.files import read_json, write_json_atomic, write_text_atomic
from slurm_jobs.common.hidden import hidden_setting
from slurm_jobs.common.path_expansion import expand_path
from slurm_jobs.common.stage_config.tune import TUNE_RUN
from slurm_jobs.operations.load import load, profile_of
from slurm_jobs.run.create import write_resolved_spec
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.spec.checks.stage_checks import limit_problems
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.loader import LoadedSpec, load_document
from slurm_jobs.spec.matrices.matrix_changes import with_changed_matrices
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides import apply_overrides, source_of, steps_of
from slurm_jobs.spec.yaml_values import YamlDocument

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
    """Return the run's spec with `overrides`.

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
    if update_spec:
        file = spec_file or Path(origin["spec_file"])
        return _from_file(paths, file, origin, overrides)
    spec, notes = _changed(paths, origin, overrides)
    return GivenSpec(
        spec=spec,
        notes=notes,
        profile=ClusterProfile.model_validate(origin["profile"]),
        spec_dir=origin["spec_dir"],
        overrides=(*origin["overrides"], *overrides),
    )


def _from_file(
    paths: RunPaths, file: Path, origin: Mapping[str, Any], overrides: Sequence[str]
) -> GivenSpec:
    before = RunSpec.model_validate_json(paths.resolved_spec.read_bytes(), strict=True)
    if any(stage.run == TUNE_RUN for stage in before.stages.values()):
        message = f"{paths.run_dir.name} tunes a training: `slurm-jobs tune {file}` tunes it again"
        raise InputError(message)
    loaded = load(file, overrides=overrides, earlier=origin["overrides"])
    profile = profile_of(loaded)
    pairs = {
        "name": (before.name, loaded.spec.name),
        "runs_dir": (before.runs_dir, loaded.spec.runs_dir),
        "cluster": (origin["profile"]["scheduler"], profile.scheduler),
    }
    for key, (then, now) in pairs.items():
        if then != now:
            message = (
                f"{loaded.file}: a run keeps its `{key}` ({then}, now {now}); submit the spec again"
            )
            raise InputError(message)
    return GivenSpec(
        spec=loaded.spec,
        profile=profile,
        spec_dir=loaded.spec_dir,
        overrides=loaded.overrides,
        loaded=loaded,
        notes=tuple(map(str, loaded.notes)),
    )


def _changed(
    paths: RunPaths, origin: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the spec with `overrides`, and notes on them; files are not checked again.

    Raises:
        SpecError: for each problem that an override causes, naming it.
    """
    text = paths.resolved_spec.read_text(encoding="utf-8")
    if not overrides:
        return RunSpec.model_validate_json(text, strict=True), ()
    try:
        loaded = _put_in(text, origin, overrides)
    except SpecError as error:
        told = [
            problem
            if problem.file != origin["spec_file"]
            else replace(problem, file=source, line=0, column=0)
            for problem, source in _with_sources(error.problems, paths, origin, overrides)
        ]
        raise SpecError(told) from None
    return loaded.spec, _new_notes(loaded, text, origin)


def _new_notes(loaded: LoadedSpec, text: str, origin: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notes that the overrides cause; the submission printed the others."""
    if not loaded.notes:
        return ()
    try:
        before = {note.message for note in _put_in(text, origin, ()).notes}
    except SpecError:  # the overrides fix what another version rejects
        before = set()
    return tuple(note.message for note in loaded.notes if note.message not in before)


def _put_in(text: str, origin: Mapping[str, Any], overrides: Sequence[str]) -> LoadedSpec:
    def read_text(file: str) -> str:
        if file.endswith((".yaml", ".yml")):
            return "{}"  # the cluster profile: the run's own is used
        raise FileNotFoundError(file)

    given = YamlDocument(file=origin["spec_file"], value=json.loads(text))
    expanded = set(_texts(given.value))

    def expand(path: str) -> str:
        return path if path in expanded else expand_path(path)

    files = Files(read_text=read_text, exists=lambda _file: True, expand=expand)
    changed = apply_overrides(given, overrides)
    document = with_changed_matrices(given, changed, lambda _name: _EXPANDED)
    problems = (*document.problems, *limit_problems(document, overrides))
    document = replace(document, problems=problems)
    return load_document(document, text, files, overrides=overrides)


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, (dict, list)):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _texts(value)


def _with_sources(
    problems: Sequence[Problem],
    paths: RunPaths,
    origin: Mapping[str, Any],
    overrides: Sequence[str],
) -> Iterator[tuple[Problem, str]]:
    """Yield each problem with the overrides that cause it; others are the run's.

    A run's values have no line that a user could read.
    """
    text = paths.resolved_spec.read_text(encoding="utf-8")

    def messages(chosen: Sequence[str]) -> set[str]:
        try:
            _put_in(text, origin, chosen)
        except SpecError as error:
            return {problem.message for problem in error.problems}
        return set()

    before = messages(())
    without = [messages([*overrides[:n], *overrides[n + 1 :]]) for n in range(len(overrides))]
    for problem in problems:
        pairs = zip(overrides, without, strict=True)
        causes = [override for override, left in pairs if problem.message not in left]
        source = " ".join(source_of(hidden_setting(each)) for each in causes or overrides)
        yield problem, str(paths.resolved_spec) if problem.message in before else source


def file_differs(paths: RunPaths) -> bool:
    """Check whether the spec's file exists and differs from the text that the run was given last.

    This only produces a note; so an unreadable file counts as equal.
    """
    try:
        now = Path(read_json(paths.spec_origin)["spec_file"]).read_text(encoding="utf-8")
        return now != paths.given_spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def keep_spec(paths: RunPaths, given: GivenSpec) -> None:
    """Record the spec that the run has from now on, and its overrides."""
    kept = {**read_json(paths.spec_origin), "overrides": list(given.overrides)}
    if given.loaded is not None:
        write_text_atomic(paths.given_spec, given.loaded.text)
        kept["profile"] = given.profile.model_dump(mode="json")
    write_json_atomic(paths.spec_origin, kept)
    write_resolved_spec(paths, given.spec)
