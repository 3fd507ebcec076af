"""Check that models on a hub can be trained, by their config.json, before anything is queued. PURE.

The hub is asked only about models that a training names, and only if the spec has no other problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.formats.configs.output_references import REFERENCE, referenced_stage
from slurm_jobs.formats.processors.model_types import MODEL_CONFIG
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.models.downloaded_folders import (
    downloaded_repository,
    downloading_stage,
    mirror_of,
)
from slurm_jobs.spec.checks.models.model_folders import PLACES, wrong_model
from slurm_jobs.spec.graph import DOWNLOADER
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.spec_files import HubAnswer
from slurm_jobs.spec.yaml.document import KeyPath, path_text

_LOGIN_VARIABLES = ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME")


@dataclass(frozen=True, kw_only=True, slots=True)
class _HubModel:
    """Model of a training that is not in a folder yet."""

    place: KeyPath
    given: str
    """Path in the spec, for advice."""
    repo: str
    revision: str | None
    stage: str
    """Stage that downloads it."""
    type_given: Any
    folder: str | None = None
    """Local folder that the stage takes it from, instead of the hub."""


def hub_model_findings(spec: CheckedSpec, profile: ClusterProfile | None) -> Iterator[Finding]:
    """Yield models of another kind as errors, and one note on all that are not known here."""
    unknown: dict[str, str] = {}
    first: KeyPath = ()
    for model in _models(spec):
        answer = _answer(spec, model, profile)
        wrong = None
        if answer.kind == "found":
            wrong = wrong_model(answer.values, model.place[2:], model.type_given, model.given)
        elif answer.kind == "none":
            wrong = f"{answer.reason}: name another model or revision"
        elif answer.kind == "no access":
            remedy = "correct the name, or `export` the HF_TOKEN of an account that may read it"
            problem = spec.problem(model.place, f"{model.repo}: {answer.reason}: {remedy}")
            # The job may have a token of its own, from a file that a line of `setup` reads.
            yield problem, not _may_log_in(spec, model, profile)
        elif answer.reason:
            first = first or model.place
            unknown.setdefault(model.repo, answer.reason)
        if wrong:
            yield spec.problem(model.place, f"{model.repo}: {wrong}"), True
    if unknown:
        reason = "; ".join(dict.fromkeys(unknown.values()))
        message = (
            f"{path_text(first)}: whether {' and '.join(unknown)} can be trained is not known "
            f"here, because {reason}"
        )
        yield spec.at(first, message), False


def _models(spec: CheckedSpec) -> Iterator[_HubModel]:
    for name, config in spec.configs.items():
        if spec.views[name].run == "train" and config.model.name is not None:
            yield _HubModel(
                place=("stages", name, "config", "model", "name"),
                given="FOLDER",
                repo=config.model.name,
                revision=None,
                stage=name,
                type_given=config.model.type,
            )
    for item in spec.expanded:
        if item.path[2:] in PLACES and str(item.path[1]) in spec.configs:
            type_given = spec.configs[str(item.path[1])].model.type
            model = _downloaded(spec, item, type_given) or _of_recipe(spec, item, type_given)
            if model is not None:
                yield model


def _downloaded(spec: CheckedSpec, item: MarkedString, type_given: Any) -> _HubModel | None:
    target = downloading_stage(spec, item.given)
    request = downloaded_repository(spec, *target) if target is not None else None
    if target is None or request is None or request.kind != "model":
        return None
    mirror = mirror_of(spec, target[0])
    return _HubModel(
        place=item.path,
        given=item.given,
        repo=request.repo,
        revision=request.revision,
        stage=target[0],
        type_given=type_given,
        folder=None if mirror is None else f"{mirror}/{request.repo}",
    )


def _of_recipe(spec: CheckedSpec, item: MarkedString, type_given: Any) -> _HubModel | None:
    """Return a model of the stage that `init` and the recipes write, whose config is unchecked."""
    match = REFERENCE.match(item.given)
    stage = referenced_stage(match[1]) if match is not None else None
    view = spec.views.get(stage or "")
    if match is None or stage is None or view is None or view.run != DOWNLOADER:
        return None
    config = view.config or {}
    name = item.given[match.end() :].strip("/")
    models, revisions = config.get("models"), config.get("revisions")
    repo = models.get(name) if isinstance(models, Mapping) else None
    revision = revisions.get(name) if isinstance(revisions, Mapping) else None
    if not isinstance(repo, str):
        return None
    source = config.get("source", "hub")
    return _HubModel(
        place=item.path,
        given=item.given,
        repo=repo,
        revision=revision if isinstance(revision, str) else None,
        stage=stage,
        type_given=type_given,
        folder=None if source == "hub" else f"{source}/{name}",
    )


def _answer(spec: CheckedSpec, model: _HubModel, profile: ClusterProfile | None) -> HubAnswer:
    if model.folder is not None:
        values = spec.files.json_values(f"{model.folder}/{MODEL_CONFIG}")
        return HubAnswer(kind="found" if values else "not known", values=values)
    return spec.files.hub_config(model.repo, model.revision, _environment(spec, model, profile))


def _environment(
    spec: CheckedSpec, model: _HubModel, profile: ClusterProfile | None
) -> Mapping[str, str]:
    given = [
        spec.document.value.get("environment"),
        spec.views[model.stage].keys.get("environment"),
    ]
    environment = dict(profile.environment) if profile is not None else {}
    for variables in given:
        environment.update(variables or {})
    return environment


def _may_log_in(spec: CheckedSpec, model: _HubModel, profile: ClusterProfile | None) -> bool:
    setups = [spec.document.value.get("setup"), spec.views[model.stage].keys.get("setup")]
    environment = _environment(spec, model, profile)
    return (
        any(setups)
        or bool(profile is not None and profile.setup)
        or any(name in environment for name in _LOGIN_VARIABLES)
    )
