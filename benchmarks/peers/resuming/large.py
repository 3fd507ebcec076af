"""How long it takes to find the position to resume from among millions of samples.

    python -m benchmarks.peers.resuming.large FOLDER NUM_SAMPLES

Without packs in the folder, it makes them, which is not measured: lengths of captions (log-normal,
median 60) with one image of 256 tokens each, packed to 4,096. Then it prints the seconds as JSON.
The columns of the index are mapped files, as in a data set.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from pipeline.data.order import BatchLayout, rank_microbatches
from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.pack_files import open_packs, write_packs
from pipeline.data.packing.pack_order import pack_order
from pipeline.data.packing.work_model import pack_work, work_model
from pipeline.data.reading_plan import ReadingPlan, plan_packed, plan_shuffled

SEED = 7
MAX_TOKENS = 4096
KEY = {"benchmark": "resume, large"}
LAYOUT = BatchLayout(global_batch_size=256, num_lanes=64, num_ranks=8, num_microbatches=1)


def main() -> None:
    """Make the packs if they are missing, or find the position."""
    folder, num_samples = Path(sys.argv[1]), int(sys.argv[2])
    if (folder / "packs.bin").exists():
        print(json.dumps(find(folder)))
    else:
        make(folder, num_samples)


def make(folder: Path, num_samples: int) -> None:
    """Write the columns and the packs."""
    draw = np.random.default_rng(SEED)
    words = np.exp(draw.normal(np.log(60), 0.6, num_samples))
    num_tokens = (256 + np.clip(words, 4, 1024)).astype(np.int32)
    num_images = np.ones(num_samples, dtype=np.int32)
    np.save(folder / "num_tokens.npy", num_tokens)
    np.save(folder / "num_images.npy", num_images)
    packs = pack_order(
        num_tokens,
        num_images,
        budget=PackBudget(max_tokens=MAX_TOKENS, max_images=16),
        strategy="exact",
        words=[SEED],
        num_processes=2,
    )
    write_packs(folder / "packs.bin", packs, KEY)


def find(folder: Path) -> dict[str, float]:
    """Return the seconds until the samples of a step in the middle of the epoch are known."""
    rank_microbatches(0, LAYOUT, 0, 1_000, plan_shuffled(1_000, seed=0, layout=LAYOUT).order)
    start_s = time.perf_counter()
    num_tokens, num_images = (
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("num_tokens", "num_images")
    )
    _find(plan_shuffled(len(num_tokens), seed=SEED, layout=LAYOUT))
    shuffled_s = time.perf_counter() - start_s

    start_s = time.perf_counter()
    packs = open_packs(folder / "packs.bin", KEY, verify=False)
    model = work_model(hidden_size=4096)
    plan = plan_packed(
        packs,
        lambda some: pack_work(packs.some(some), num_tokens, num_images, model),
        seed=SEED,
        layout=LAYOUT,
        row_length=MAX_TOKENS,
    )
    _find(plan)
    return {"shuffled_s": shuffled_s, "packed_s": time.perf_counter() - start_s}


def _find(plan: ReadingPlan) -> None:
    step = plan.num_packs // LAYOUT.global_batch_size // 2
    for part in rank_microbatches(step, LAYOUT, 3, plan.num_packs, plan.order):
        assert all(len(plan.samples_of(pack)) for pack in part.packs.tolist())


if __name__ == "__main__":
    main()
