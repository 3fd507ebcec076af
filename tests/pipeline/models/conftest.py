"""Every kind of model with its data set, made once; the small VLM, and folders of towers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.data.batch import Batch, collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.disk_format.sample_members import Sample
from pipeline.models.build import build_model
from pipeline.models.data_facts import DataFacts, load_tokenizer, read_facts
from pipeline.models.small_vlm import SmallVLM
from pipeline.models.vision_language import VisionLanguageModel
from slurm_jobs.formats.configs.model_parts import ModelConfig
from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR
from tests.pipeline.kinds import KINDS
from tests.pipeline.models.small import CONFIG, make_facts
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.models.tiny_towers import write_qwen2, write_siglip


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of model, a folder of it, and a data set that it takes."""

    name: str
    model_dir: Path
    dataset_dir: Path
    dataset: ShardedDataset
    facts: DataFacts

    @property
    def config(self) -> ModelConfig:
        return ModelConfig(type="hugging_face", path=str(self.model_dir))

    def build(self) -> VisionLanguageModel:
        return build_model(self.config, self.facts, seed=0)

    def samples(self) -> list[Sample]:
        """In the order of the manifest, of `tiny.ROWS`."""
        found = [self.dataset.sample(number) for number in range(len(self.dataset))]
        return sorted(found, key=lambda sample: sample.key)

    def batch(
        self, model: VisionLanguageModel, rows: list[list[Sample]], length: int | None = None
    ) -> Batch:
        return collate(
            rows,
            rule=self.dataset.rule,
            needs=model.layout.needs,
            image_token_id=self.facts.info.image_token_id,
            pad_token_id=self.facts.info.pad_token_id,
            epoch=0,
            buffers=BufferPool(pin_memory=False),
            length=length,
        )


def open_kind(name: str, dataset_dir: Path, model_dir: Path) -> Kind:
    dataset = open_dataset(dataset_dir)
    return Kind(
        name=name,
        model_dir=model_dir,
        dataset_dir=dataset_dir,
        dataset=dataset,
        facts=read_facts(dataset.info, load_tokenizer(dataset_dir / PROCESSOR_DIR)),
    )


@pytest.fixture(params=KINDS)
def kind(request, make_kind) -> Kind:
    return make_kind(request.param)


@pytest.fixture
def model() -> SmallVLM:
    return build_model(CONFIG, make_facts(), seed=3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("towers")
    return {
        "siglip": write_siglip(root / "siglip"),
        "siglip_vision": write_siglip(root / "siglip_vision", whole=False),
        "tied": write_qwen2(root / "tied", tied=True),
        "untied": write_qwen2(root / "untied", tied=False),
    }


@pytest.fixture
def tied_dir(tmp_path: Path) -> Path:
    """A model whose output head is its embeddings."""
    return write_tiny("qwen2_5_vl", tmp_path / "tied", tied=True)
