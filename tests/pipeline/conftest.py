"""Fixtures of the pipeline's tests: a tiny processor folder, and data sets made with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_jobs.formats.records import heartbeat
from tests.pipeline.build import (
    run_consolidate,
    run_preprocess,
    write_csv_manifest,
    write_processor,
)

if TYPE_CHECKING:
    from tests.pipeline.models.conftest import Kind


@pytest.fixture(autouse=True)
def _no_job_of_slurm_around_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may themselves run in a job: when that began is nothing to the stages in them."""
    monkeypatch.delenv("SLURM_JOB_START_TIME", raising=False)


@pytest.fixture
def _forget_compiled() -> Iterator[None]:
    """What one test has compiled is no other's."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def last_beat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], dict[str, Any]]]:
    """Give this process a heartbeat that is written often; reads it."""
    folder = tmp_path_factory.mktemp("task")
    heartbeat.start_heartbeat(folder, 0, stall_timeout_min=0.001, collective_timeout_min=10)

    def read() -> dict[str, Any]:
        beat = heartbeat.read_heartbeat(folder, 0)
        assert beat is not None
        return beat

    yield read
    heartbeat.start_heartbeat(folder, 0, stall_timeout_min=None, collective_timeout_min=10)


@pytest.fixture(scope="session")
def processor_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_processor(tmp_path_factory.mktemp("processor"))


@pytest.fixture(scope="session")
def make_dataset(
    tmp_path_factory: pytest.TempPathFactory, processor_dir: Path
) -> Callable[..., Path]:
    """Builds a data set of so many samples, and returns its folder."""

    def build(
        num_samples: int, *, num_slices: int = 1, image_format: str = "png", **config: object
    ):
        folder = tmp_path_factory.mktemp("dataset")
        manifest = write_csv_manifest(folder / "source", num_samples)
        values = {
            "manifest": str(manifest),
            "processor": str(processor_dir),
            "image_format": image_format,
            "num_threads": 1,
        }
        _, parts_dir = run_preprocess(folder / "prep", values, num_slices)
        return run_consolidate(folder / "set", parts_dir, num_slices, **config)[1]

    return build


@pytest.fixture(scope="session")
def dataset_dir(make_dataset: Callable[..., Path]) -> Path:
    """A data set of 23 samples in 3 shards. Tests that change files must copy it."""
    return make_dataset(23, num_shards=3)


@pytest.fixture(scope="session")
def make_kind(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Kind]:
    """A maker of kinds of models with their data sets, each made once."""
    from tests.pipeline.models.conftest import open_kind  # loads transformers
    from tests.pipeline.models.tiny import write_dataset, write_tiny

    made: dict[str, Kind] = {}

    def make(name: str) -> Kind:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            dataset_dir = write_dataset(name, folder)
            made[name] = open_kind(name, dataset_dir, write_tiny(name, folder / "model"))
        return made[name]

    return make
