"""Names of classes in a table's schema become the words of rows with their numbers."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from slurm_jobs.formats.configs.stages import Columns
from slurm_jobs.formats.manifests.class_labels import class_names, with_class_names
from slurm_jobs.formats.manifests.row_options import RowOptions

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "breed": {"_type": "ClassLabel", "names": ["siamese"]},
}
OPTIONS = RowOptions(columns=Columns(text="label"))


def _schema(stored: Any) -> pa.Schema:
    metadata = {"huggingface": stored if isinstance(stored, str) else json.dumps(stored)}
    return pa.schema([("label", pa.int64()), ("breed", pa.int64())], metadata=metadata)


@pytest.mark.parametrize(("number", "word"), [(0, "cat"), (1, "dog"), (2, None), (-1, None)])
def test_numbers_of_a_column_that_is_read_become_names(number: int, word: str | None) -> None:
    names = class_names(_schema({"info": {"features": FEATURES}}), OPTIONS)
    assert with_class_names({"label": number, "breed": 0}, names) == {"label": word, "breed": 0}


@pytest.mark.parametrize(
    "stored",
    ["{", "[]", {"info": None}, {"info": {"features": []}}, {"info": {"features": {"label": 3}}}],
)
def test_metadata_of_another_form_names_nothing(stored: Any) -> None:
    assert class_names(_schema(stored), OPTIONS) == {}
    assert class_names(pa.schema([("label", pa.int64())]), OPTIONS) == {}
