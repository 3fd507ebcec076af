"""What a data set says of itself, for tests that need no data set."""

from __future__ import annotations

from typing import Any

from pipeline.data.disk_format.dataset_info import DatasetInfo, IndexInfo

_FIELDS: dict[str, Any] = {
    "num_samples": 0,
    "num_shards": 0,
    "num_tokens": 0,
    "num_images": 0,
    "seed": 0,
    "image_kind": "fixed",
    "image_height": 32,
    "image_width": 32,
    "image_mean": (0.5, 0.5, 0.5),
    "image_std": (0.5, 0.5, 0.5),
    "rescale_factor": 1 / 255,
    "image_token": "<image>",
    "image_token_id": 4,
    "pad_token_id": 0,
    "num_image_tokens": 4,
    "patch_size": None,
    "merge_size": None,
    "temporal_patch_size": None,
    "image_format": "png",
    "preprocess": {},
    "shards": (),
    "index": IndexInfo(num_bytes=0, xxh3={}),
}


def make_info(**changes: Any) -> DatasetInfo:
    """Of an empty data set with images of 32 pixels, 4 tokens each."""
    return DatasetInfo(**(_FIELDS | changes))
