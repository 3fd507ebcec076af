"""Choice of the files of a repository that are downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from huggingface_hub.utils import filter_repo_objects

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.download import RepositoryKind, RepositoryRequest

_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Patterns:
    include: tuple[str, ...]
    exclude: tuple[str, ...]


_DEFAULTS: Mapping[RepositoryKind, _Patterns] = {
    "model": _Patterns(
        include=(
            *("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken"),
            *("*.md", "LICENSE*", "NOTICE*"),
        ),
        # Copies of the same weights, in the forms of other programs.
        exclude=("original/*", "onnx/*", "openvino/*", "consolidated*"),
    ),
    "dataset": _Patterns(
        include=("*",), exclude=("*.pkl", "*.pickle", "*.pt", "*.pth", "*.bin", ".gitattributes")
    ),
}
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def chosen_names(request: RepositoryRequest, names: Sequence[str]) -> list[str]:
    """Return the files that a request asks for, of all files of the repository.

    Raises:
        StageConfigError: none, or a model without the weights that the defaults would take.
    """
    patterns = _DEFAULTS[request.kind]
    if request.include:
        patterns = _Patterns(include=request.include, exclude=())
    exclude = [*patterns.exclude, *request.exclude]
    chosen = list(
        filter_repo_objects(
            names, allow_patterns=list(patterns.include), ignore_patterns=exclude or None
        )
    )
    if not chosen:
        message = (
            f"{request.folder}: none of its {len(names)} files match the patterns "
            f"{', '.join(patterns.include)}{' without ' if exclude else ''}{', '.join(exclude)}; "
            f"it has {_some(names)}. Correct `include` and `exclude`"
        )
        raise StageConfigError(message)
    pickles = [name for name in names if name.endswith(_PICKLES)]
    has_weights = any(name.endswith(".safetensors") for name in chosen)
    if request.kind == "model" and not request.include and pickles and not has_weights:
        message = (
            f"{request.folder} has its weights as pickles alone ({_some(pickles)}), and reading "
            "one could run any code. Take a revision or a copy with safetensors (the hub often "
            "has one as `revision: refs/pr/1`), or name the files in `include`"
        )
        raise StageConfigError(message)
    return chosen


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", .." if len(names) > _MOST_NAMED else "")
