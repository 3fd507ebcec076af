"""A small data set to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fuzz.budget import FACTOR

_LIMIT_S = 600
"""Time limit of a test that draws no more examples than usual."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that draw many times as many examples as much more time."""
    for item in items:
        if FACTOR and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(_LIMIT_S * FACTOR))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 7 samples in 2 shards, with its images as PNG."""
    from tests.pipeline.build import (
        run_consolidate,
        run_preprocess,
        write_csv_manifest,
        write_processor,
    )

    folder = tmp_path_factory.mktemp("dataset")
    values = {
        "manifest": str(write_csv_manifest(folder / "source", 7)),
        "processor": str(write_processor(folder / "processor")),
        "image_format": "png",
        "num_threads": 1,
    }
    _, parts_dir = run_preprocess(folder / "prep", values, 1)
    return run_consolidate(folder / "set", parts_dir, 1, num_shards=2)[1]


@pytest.fixture(scope="module")
def damaged(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it, for one test file; each example writes one file of it and puts it back."""
    return Path(shutil.copytree(sound, tmp_path_factory.mktemp("copy") / "set"))
