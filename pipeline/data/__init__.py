"""Shards to the batches of one rank: exact order, exact position, exact resume.

`open_dataset` reads the index, `order` decides which sample comes when, and `BatchReader`
assembles batches ahead of time. `preprocess` writes the samples; `stage_in` copies them to a
node.
"""

from typing import TYPE_CHECKING, Any

from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.info import DatasetInfo, read_dataset_info

if TYPE_CHECKING:
    from pipeline.data.batch import Batch
    from pipeline.data.reader import BatchReader

__all__ = [
    "Batch",
    "BatchReader",
    "DatasetInfo",
    "ShardedDataset",
    "open_dataset",
    "read_dataset_info",
]


def __getattr__(name: str) -> Any:
    """Import `Batch` and `BatchReader` on demand: the stages on CPU nodes need not load torch."""
    if name == "BatchReader":
        from pipeline.data.reader import BatchReader

        return BatchReader
    if name == "Batch":
        from pipeline.data.batch import Batch

        return Batch
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
