"""Which files of a repository are downloaded."""

from __future__ import annotations

import pytest

from pipeline.download.file_choice import chosen_names
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.download import RepositoryKind, RepositoryRequest
from tests.pipeline.download.hub_stage import USEFUL, model_files

DATA = ["README.md", ".gitattributes", "a.pkl", "data/train-0.parquet", "images/1.png"]


def request(
    kind: RepositoryKind, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> RepositoryRequest:
    return RepositoryRequest(kind=kind, repo="o/n", revision=None, include=include, exclude=exclude)


@pytest.mark.parametrize(
    ("given", "names", "chosen"),
    [
        (request("model"), list(model_files()), USEFUL),
        (request("model", exclude=("*00002-of*",)), ["a.json", "x-00002-of-3.json"], {"a.json"}),
        (
            request("model", include=("*.bin", "onnx/")),
            ["a.bin", "a.json", "onnx/b"],
            {"a.bin", "onnx/b"},
        ),
        (request("model"), ["tokenizer.json", "consolidated.safetensors"], {"tokenizer.json"}),
        (request("dataset"), DATA, {"README.md", "data/train-0.parquet", "images/1.png"}),
        (
            request("dataset", include=("*",), exclude=("data/*", ".*")),
            DATA,
            {"README.md", "a.pkl", "images/1.png"},
        ),
    ],
)
def test_the_defaults_are_safe_files_and_patterns_replace_them(
    given: RepositoryRequest, names: list[str], chosen: set[str]
) -> None:
    assert set(chosen_names(given, names)) == chosen


@pytest.mark.parametrize(
    ("given", "names", "words"),
    [
        (
            *(request("dataset", include=("*.gguf",), exclude=("a*",)), DATA),
            r"none of its 5 files match the patterns \*\.gguf without a\*; it has README\.md",
        ),
        (
            request("model"),
            ["config.json", "a.bin"],
            r"pickles alone \(a\.bin\).*`refs/pr|include`",
        ),
    ],
)
def test_a_choice_without_usable_files_is_refused(
    given: RepositoryRequest, names: list[str], words: str
) -> None:
    with pytest.raises(StageConfigError, match=words):
        chosen_names(given, names)
