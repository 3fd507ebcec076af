"""Loader of a spec: from text to values that can be planned, or all problems at once. PURE.

Access to files is passed in, so that the same code serves the command line, the tests and a
notebook.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from slurm_jobs.base.errors import PathExpansionError, Problem, SpecError
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.base.written_values import printable
from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.checked_spec import CheckedSpec, LoadedSpec
from slurm_jobs.spec.checks.data.datasets import dataset_problems
from slurm_jobs.spec.checks.data.evaluated_rows import evaluated_row_problems
from slurm_jobs.spec.checks.data.few_rows import few_row_findings
from slurm_jobs.spec.checks.data.held_out_share import held_out_share_findings
from slurm_jobs.spec.checks.data.image_files import (
    foreign_image_findings,
    image_place_problems,
    missing_image_findings,
)
from slurm_jobs.spec.checks.data.image_sizes import image_size_findings
from slurm_jobs.spec.checks.data.manifest_notes import manifest_notes
from slurm_jobs.spec.checks.data.manifests import manifest_problems
from slurm_jobs.spec.checks.data.mixtures import mixture_notes, mixture_problems
from slurm_jobs.spec.checks.data.text_alone import text_alone_findings
from slurm_jobs.spec.checks.data.unusable_rows import unusable_row_findings
from slurm_jobs.spec.checks.entry_points import entry_point_problems, module_problems
from slurm_jobs.spec.checks.models.accelerate_config import accelerate_problems
from slurm_jobs.spec.checks.models.downloaded_folders import downloaded_folder_problems
from slurm_jobs.spec.checks.models.hub_models import hub_model_findings
from slurm_jobs.spec.checks.models.image_kinds import image_pixels_problems, image_problems
from slurm_jobs.spec.checks.models.layer_patterns import target_problems
from slurm_jobs.spec.checks.models.model_folders import model_problems
from slurm_jobs.spec.checks.models.processor_contents import processor_problems
from slurm_jobs.spec.checks.path_checks import path_problems, runs_dir_problems, unexpanded_notes
from slurm_jobs.spec.checks.references import reference_problems
from slurm_jobs.spec.checks.sbatch_conflicts import (
    ProfileOptions,
    conflict_problems,
    environment_option_problems,
    unknown_option_notes,
)
from slurm_jobs.spec.checks.stages.idle_settings import idle_setting_notes
from slurm_jobs.spec.checks.stages.resource_notes import resource_notes
from slurm_jobs.spec.checks.stages.row_lengths import row_notes
from slurm_jobs.spec.checks.stages.stage_form import form_problems
from slurm_jobs.spec.checks.stages.training_agreement import stage_problems
from slurm_jobs.spec.graph import graph_problems
from slurm_jobs.spec.marked_paths import MarkedString, Surroundings, absolute, resolve_marked
from slurm_jobs.spec.matrix import as_in_the_file
from slurm_jobs.spec.model import Resources, RunSpec
from slurm_jobs.spec.overrides.apply import override_problems
from slurm_jobs.spec.overrides.with_matrices import expand_with, marked_earlier
from slurm_jobs.spec.profile import LOCAL, ClusterProfile
from slurm_jobs.spec.spec_files import Files, read_text_of
from slurm_jobs.spec.stage_views import StageView, stage_views
from slurm_jobs.spec.validation import readable_fields, validate_values
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, problem_at
from slurm_jobs.spec.yaml.reader import read_yaml

SPECIAL_CLUSTERS = ("auto", "local")
_DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")


def load_spec(
    file: str,
    files: Files,
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    earlier: Sequence[str] = (),
) -> LoadedSpec:
    """Read, check and complete the spec in `file` (an absolute path).

    Args:
        file: the YAML.
        files: access to other files.
        overrides: of this command.
        limit: shorthand for the override `limit=N`; a problem if no stage uses it.
        earlier: overrides of earlier commands of this run. The file may have changed since, so
            those of stages that no longer exist are left out.

    Raises:
        SpecError: with every problem found.
    """
    is_data = file.lower().endswith(_DATA_SUFFIXES) and files.holds(file)
    if is_data or files.is_folder(file):
        message = (
            f"{'data' if is_data else 'a folder'}, but a spec is a YAML file; for images or a "
            f"manifest: `slurm-jobs init --data {shlex.quote(printable(file))}`"
        )
        raise SpecError([Problem(file=printable(file), line=0, column=1, message=message)])
    text = read_text_of(file, files)
    document = read_yaml(text, file)
    if document.value is None:
        empty = Problem(file=file, line=1, column=1, message="the file is empty")
        raise SpecError(list(document.problems) or [empty])
    typed = list(overrides)
    if limit is not None:
        typed.append(f"limit={limit}")
    expanded = expand_with(document, typed, earlier=earlier)
    document = expanded.document
    problems = (*document.problems, *override_problems(document, typed))
    document = dataclasses.replace(document, problems=problems)
    # Messages name the stages as the file does, not the combinations that a matrix made of them.
    try:
        loaded = load_document(document, text, files, overrides=expanded.overrides)
    except SpecError as error:
        in_the_file = as_in_the_file(error.problems, document, expanded.origins)
        # The earlier overrides were not typed now, so their problems say where they come from.
        raise SpecError(marked_earlier(in_the_file, earlier, typed)) from None
    notes = tuple(as_in_the_file(loaded.notes, document, expanded.origins))
    return dataclasses.replace(loaded, left_out=expanded.left_out, notes=notes)


def load_document(
    document: YamlDocument, text: str, files: Files, *, overrides: Sequence[str]
) -> LoadedSpec:
    """Check and complete the values of a spec that already contain `overrides`.

    The order of the checks matters where they use `_elsewhere`: of several problems at one place
    only those of the first check are shown.

    Raises:
        SpecError: with every problem found.
    """
    folder = str(PurePosixPath(document.file).parent)
    around = files.around(folder)
    as_written, problems = validate_values(RunSpec, document, document.value, ())
    views = stage_views(document.value)
    configs, config_problems = _builtin_configs(views, document)
    problems += config_problems
    values, marked = _resolve(as_written, views, configs, document, around)
    spec = CheckedSpec(document=document, views=views, files=files, configs=configs, marked=marked)
    problems += [*form_problems(spec), *graph_problems(spec), *reference_problems(spec)]
    problems += [*_training_problems(spec), *evaluated_row_problems(spec)]
    problems += mixture_problems(spec)
    profile, profile_problems = _load_profile(document, around, files)
    options: ProfileOptions = (profile.slurm, profile.gpu_slurm) if profile else ({}, {})
    problems += _elsewhere(problems, conflict_problems(spec, options))
    for name, view in views.items():
        place: KeyPath = ("stages", name, "resources", "slurm")
        option_problems = environment_option_problems(view.resources.get("slurm"), place, document)
        problems += _elsewhere(problems, option_problems)
    problems += entry_point_problems(spec, profile)
    if not profile_problems:
        problems += module_problems(spec, profile)
    on_this_machine = profile is not None and profile.scheduler == "local"
    problems += _elsewhere(problems, _file_problems(spec, marked, runs_here=on_this_machine))
    data_notes: list[Problem] = []
    judged = [
        text_alone_findings(spec),
        missing_image_findings(spec),
        foreign_image_findings(spec),
        unusable_row_findings(spec),
        image_size_findings(spec),
        few_row_findings(spec),
        held_out_share_findings(spec),
    ]
    if as_written is not None and not (problems or profile_problems or document.problems):
        judged.append(hub_model_findings(spec, profile))
    for findings in judged:
        errors: list[Problem] = []
        for problem, is_error in findings:
            if is_error:
                errors.append(problem)
            else:
                data_notes.append(problem)
        problems += _elsewhere(problems, errors)
    problems = [
        *document.problems,
        *_without_yaml_consequences(document, problems),
        *profile_problems,
    ]
    if as_written is None or problems:
        raise SpecError(_sorted(problems))
    notes = [
        *manifest_notes(spec),
        *mixture_notes(spec),
        *data_notes,
        *idle_setting_notes(spec),
        *row_notes(spec),
        *unexpanded_notes(spec),
        *resource_notes(spec, as_written),
        *unknown_option_notes(spec, options),
    ]
    # A model of its own, because `values` have absolute paths and complete configs by now.
    return LoadedSpec(
        spec=RunSpec.model_validate_json(json.dumps(values), strict=True),
        profile=profile,
        text=text,
        file=document.file,
        spec_dir=folder,
        overrides=tuple(overrides),
        document=document,
        notes=tuple(_sorted(notes)),
    )


def _builtin_configs(
    views: Mapping[str, StageView], document: YamlDocument
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the valid configs of built-in stages by stage, and the problems of the others."""
    configs: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, view in views.items():
        if view.run in BUILTIN_STAGES and view.config is not None:
            place: KeyPath = ("stages", name, "config")
            config, more = validate_values(config_class(view.run), document, view.config, place)
            problems += more
            if config is not None:
                configs[name] = config
    return configs, problems


def _file_problems(
    spec: CheckedSpec, marked: Sequence[MarkedString], *, runs_here: bool
) -> Iterator[Problem]:
    """Yield problems of the files and folders that a spec names, and of their contents."""
    yield from path_problems(marked, spec.document, spec.files.holds, runs_here=runs_here)
    yield from downloaded_folder_problems(spec)
    yield from processor_problems(spec)
    yield from manifest_problems(spec)
    yield from image_place_problems(spec)
    yield from dataset_problems(spec)
    yield from model_problems(spec)
    yield from target_problems(spec)
    yield from image_problems(spec)
    yield from image_pixels_problems(spec)
    yield from accelerate_problems(spec)
    yield from runs_dir_problems(spec)


def _training_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield contradictions between the keys of each training.

    Of a config with invalid keys the valid ones are checked. A stage with invalid resources is
    skipped.
    """
    for name, view in spec.views.items():
        if view.run != "train" or view.config is None:
            continue
        config = spec.configs.get(name)
        unreadable: frozenset[str] = frozenset()
        if config is None:  # it has invalid keys
            place: KeyPath = ("stages", name, "config")
            config, unreadable, of_config = readable_fields(
                config_class("train"), spec.document, view.config, place
            )
            yield from of_config
        place = ("stages", name, "resources")
        given = view.keys.get("resources", {})
        # The validation of the whole spec has reported the problems of the resources.
        resources, _ = validate_values(Resources, spec.document, given, place)
        if resources is not None:
            yield from stage_problems(spec, name, resources, config, unreadable=unreadable)


def _elsewhere(first: Sequence[Problem], more: Iterable[Problem]) -> list[Problem]:
    """Return `more` without problems at a place in `first`: one message for one mistake."""
    places = {(p.file, p.line, p.column) for p in first}
    return [p for p in more if (p.file, p.line, p.column) not in places]


def _without_yaml_consequences(
    document: YamlDocument, problems: Sequence[Problem]
) -> list[Problem]:
    """Return `problems` without those that follow from invalid YAML.

    They are at the place of a YAML problem, or at a value with a refused tag or merge key: what it
    should be is unknown.
    """
    causes = [*document.problems]
    for path in document.refused:  # without a message, because only their places are compared
        causes.append(problem_at(document, path, "", at_key=False))
        causes.append(problem_at(document, path, "", at_key=True))
    return _elsewhere(causes, problems)


def _sorted(problems: list[Problem]) -> list[Problem]:
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda p: (p.file, p.line, p.column))


def _resolve(
    as_written: RunSpec | None,
    views: Mapping[str, StageView],
    configs: Mapping[str, Any],
    document: YamlDocument,
    around: Surroundings,
) -> tuple[dict[str, Any], list[MarkedString]]:
    """Return the spec's values with absolute paths and complete configs, and every path in them.

    Without a valid spec the paths are found in the raw values.
    """
    given = as_written.model_dump(mode="json") if as_written is not None else document.value
    values, marked = resolve_marked(RunSpec, given, around)
    for name, view in views.items():
        if view.run not in BUILTIN_STAGES or view.config is None:
            continue
        config = dataclasses.asdict(configs[name]) if name in configs else view.config
        path: KeyPath = ("stages", name, "config")
        plain, more = resolve_marked(config_class(view.run), config, around, path=path)
        values["stages"][name]["config"] = plain
        marked += more
    return values, marked


def _load_profile(
    document: YamlDocument, around: Surroundings, files: Files
) -> tuple[ClusterProfile | None, list[Problem]]:
    given = document.value.get("cluster", "auto") if isinstance(document.value, dict) else "auto"
    if given == "auto" or not isinstance(given, str):
        return None, []
    if given == "local":
        return LOCAL, []
    try:
        file = absolute(around.expand(given), around.base_dir)
    except PathExpansionError as error:
        return None, [problem_at(document, ("cluster",), f"cluster: {error}")]
    if not files.holds(file):
        message = (
            f"cluster: no profile at {file}{did_you_mean(given, SPECIAL_CLUSTERS)} "
            "(allowed: a file, `local`, `auto`)"
        )
        return None, [problem_at(document, ("cluster",), message)]
    try:
        return read_profile(file, files), []
    except SpecError as error:
        return None, list(error.problems)


def read_profile(file: str, files: Files) -> ClusterProfile:
    """Read the cluster profile in `file` (an absolute path).

    Raises:
        SpecError: with every problem found.
    """
    document = read_yaml(read_text_of(file, files), file)
    values = {} if document.value is None else document.value
    profile, problems = validate_values(ClusterProfile, document, values, ())
    base_dir = str(PurePosixPath(file).parent)
    around = files.around(base_dir)
    given = values if profile is None else profile.model_dump(mode="json")
    plain, marked = resolve_marked(ClusterProfile, given, around)
    on_this_machine = profile is not None and profile.scheduler == "local"
    more = path_problems(marked, document, files.holds, runs_here=on_this_machine)
    problems += _elsewhere(problems, more)
    if isinstance(values, dict):
        for key in ("slurm", "gpu_slurm"):
            option_problems = environment_option_problems(values.get(key), (key,), document)
            problems += _elsewhere(problems, option_problems)
    problems = [*document.problems, *_without_yaml_consequences(document, problems)]
    if problems:
        raise SpecError(_sorted(problems))
    return ClusterProfile.model_validate_json(json.dumps(plain), strict=True)
