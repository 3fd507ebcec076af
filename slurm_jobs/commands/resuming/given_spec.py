"""Spec that a resume uses: the run's own with overrides, or its current file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from slurm_jobs.base.errors import InputError, PathExpansionError, SpecError
from slurm_jobs.base.files import read_json, write_json_atomic, write_text_atomic
from slurm_jobs.base.redact import hidden_setting
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.commands.cluster_limits import profile_of
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from slurm_jobs.formats.expand import expand_path, expand_text
from slurm_jobs.plan.fingerprints import without_new_defaults
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec, write_resolved_spec
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.load import load_document
from slurm_jobs.spec.marked_paths import absolute
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides.apply import apply_overrides, override_problems, source_of, steps_of
from slurm_jobs.spec.overrides.with_matrices import with_changed_matrices
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml.document import YamlDocument

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
        before = messages(())
        messages_without = [
            messages([*overrides[:n], *overrides[n + 1 :]]) for n in range(len(overrides))
        ]
        problems = []
        for problem in error.problems:
            if problem.file != origin["spec_file"]:
                problems.append(problem)
                continue
            source = str(paths.resolved_spec)
            if problem.message not in before:
                causes = [
                    override
                    for n, override in enumerate(overrides)
                    if problem.message not in messages_without[n]
                ]
                source = " ".join(source_of(hidden_setting(each)) for each in causes or overrides)
            problems.append(problem.changed(file=source, line=0, column=0))
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
