"""Our reader, whose state is the step: shuffled, or packed by a plan file next to the index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset  # noqa: F401 - what reading the index imports when it first does

from benchmarks.peers.resuming.going_on import SEED, Place
from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.index import DatasetIndex
from pipeline.data.loader import BatchReader
from pipeline.data.order import BatchLayout, rank_microbatches
from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.pack_files import open_packs, write_packs
from pipeline.data.packing.pack_order import pack_order
from pipeline.data.packing.work_model import pack_work, work_model
from pipeline.data.reading_plan import ReadingPlan, plan_packed, plan_shuffled

NAME = "ours"
NEEDS = "torch"
PACKAGE = "slurm-jobs"
IS_STATE_OF_RANK = False
NUM_LANES = 4
MAX_TOKENS = 400
"""Size of a pack; a sample has about 60 tokens."""
PACKS_KEY = {"benchmark": "resume"}


def build_numbers(folder: Path, num_samples: int) -> None:
    """Build the set with our stages: tiny images, texts of several lengths, packs of an epoch."""
    from tests.pipeline.build import (
        run_consolidate,
        run_preprocess,
        write_csv_manifest,
        write_processor,
    )

    config = {
        "manifest": str(write_csv_manifest(folder / "source", num_samples)),
        "processor": str(write_processor(folder / "processor")),
        "image_format": "raw",
    }
    _, parts = run_preprocess(folder / "preprocess", config)
    _, dataset_dir = run_consolidate(folder / "consolidate", parts, num_shards=8)
    index = open_dataset(dataset_dir).index
    packs = pack_order(
        index.num_tokens,
        index.num_images,
        budget=PackBudget(max_tokens=MAX_TOKENS, max_images=None),
        strategy="exact",
        words=[SEED],
    )
    write_packs(folder / "packs.bin", packs, PACKS_KEY)


def open_numbers(folder: Path, place: Place, *, is_packed: bool = False) -> OurLoader:
    """See `Resumable`."""
    return OurLoader(folder, place, is_packed=is_packed)


class OurLoader:
    """Drives a `BatchReader` as the training loop does."""

    def __init__(self, folder: Path, place: Place, *, is_packed: bool) -> None:
        self._place = place
        self._dataset = open_dataset(folder / "consolidate" / "output")
        self._step = 0
        self.position_s = 0.0
        """Clock time when the packs of the first step were known."""
        layout = BatchLayout(
            global_batch_size=place.batch_size * place.num_ranks,
            num_lanes=NUM_LANES,
            num_ranks=place.num_ranks,
            num_microbatches=1,
        )
        if is_packed:
            self._plan = packed_plan(folder / "packs.bin", self._dataset.index, layout)
        else:
            self._plan = plan_shuffled(len(self._dataset), seed=SEED, layout=layout)

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys of each batch, without end."""
        plan, rank = self._plan, self._place.rank
        rank_microbatches(self._step, plan.layout, rank, plan.num_packs, plan.order)
        self.position_s = time.perf_counter()
        with BatchReader(self._dataset, plan, rank=rank, start_step=self._step) as steps:
            for (batch,) in steps:
                self._step += 1
                yield [int(key) for key in batch.keys]

    def state_dict(self) -> int:
        """Return the number of completed steps."""
        return self._step

    def load_state_dict(self, state: int) -> None:
        """Resume after this many steps."""
        self._step = state


def packed_plan(path: Path, index: DatasetIndex, layout: BatchLayout) -> ReadingPlan:
    """Open existing packs as training does (`pipeline.train.training_data.batching`)."""
    packs = open_packs(path, PACKS_KEY, verify=False)
    model = work_model(hidden_size=1024)
    return plan_packed(
        packs,
        lambda some: pack_work(packs.some(some), index.num_tokens, index.num_images, model),
        seed=SEED,
        layout=layout,
        row_length=MAX_TOKENS,
    )
