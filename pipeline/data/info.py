"""`dataset.json`: what a finished data set says of itself. Its presence proves the data set whole.

```
dataset.json  index.arrow  rejects.jsonl  processor/  shards/shard-000000.tar ...
```
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from slurm_jobs.common.dataset_names import INFO_NAME
from slurm_jobs.common.errors import StageError
from slurm_jobs.common.model_kinds import ImageKind

DATASET_FORMAT = "slurm-jobs-dataset-2"
REJECTS_NAME = "rejects.jsonl"
PACKS_DIR = "packs"
"""What trainings packed; made anew where it is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardInfo:
    """One shard."""

    name: str
    """`shard-000000.tar`."""
    num_bytes: int
    xxh3: str
    """xxh3-64 of the file, in hexadecimal."""
    num_samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexInfo:
    """The index, so far as it can be checked."""

    num_bytes: int
    """Of the file."""
    xxh3: Mapping[str, str]
    """xxh3-64 of the values of each column as they lie in the file, in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """The content of `dataset.json`."""

    num_samples: int
    num_shards: int
    num_tokens: int
    """Image tokens included."""
    num_images: int
    """Stored ones: of tiled images, all tiles."""
    seed: int
    """Of the permutation over all samples."""
    image_kind: ImageKind
    image_height: int | None
    """Of every stored image; None if `native`."""
    image_width: int | None
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float
    """uint8 pixels are multiplied by it before mean and deviation are applied."""
    image_token: str
    image_token_id: int
    pad_token_id: int
    num_image_tokens: int | None
    """Image tokens that stand for one stored image; None where that depends on its size."""
    patch_size: int | None
    """Side of a patch in pixels, of which a `native` image has a whole number; else None."""
    merge_size: int | None
    """A square of this many patches a side is one token of a `native` image; else None."""
    temporal_patch_size: int | None
    """How often the model repeats a `native` image in time; else None."""
    image_format: str
    """As `ImageFormat` of the `preprocess` stage's config."""
    preprocess: Mapping[str, Any]
    """What shaped the samples: limits, prompts, hashes of manifest and processor, versions."""
    shards: tuple[ShardInfo, ...]
    index: IndexInfo
    rejects_xxh3: str | None = None
    """xxh3-64 of `rejects.jsonl`, in hexadecimal; None in a `dataset.json` of an older version."""
    processor_sha256: Mapping[str, str] | None = None
    """SHA-256 of each file of `processor/` by name, in hexadecimal; None in a `dataset.json` of an
    older version."""

    @property
    def num_bytes(self) -> int:
        """Of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """xxh3-128 over all fields but the checksums of rejects and processor, in hexadecimal.

        It is equal for equal samples. So a data set keeps its copies on nodes and its checkpoints
        where only the rejects, or the version that wrote these checksums, differ. (The processor's
        files are part of it by `preprocess`.)
        """
        values = dataclasses.asdict(self)
        del values["rejects_xxh3"], values["processor_sha256"]
        return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def shard_name(shard: int) -> str:
    """File name of a shard, counted from 0."""
    return f"shard-{shard:06d}.tar"


def dataset_info_to_json(info: DatasetInfo) -> dict[str, Any]:
    """The values of `dataset.json`."""
    values = dataclasses.asdict(info)
    return {"format": DATASET_FORMAT, **values, "fingerprint": info.fingerprint}


def read_dataset_info(dataset_dir: Path) -> DatasetInfo:
    """Read a data set's `dataset.json`.

    Raises:
        StageError: it is missing (consolidate did not finish), not readable by this user, of
            another format, damaged, or was changed by hand.
    """
    path = dataset_dir / INFO_NAME
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        message = f"{path}: missing, so the data set is not finished; run consolidate"
        raise StageError(message) from error
    except PermissionError as error:
        message = (
            f"{path}: this user may not read it; its owner gives the right with: "
            f"chmod -R a+rX {shlex.quote(str(dataset_dir))}, and x on the folders above"
        )
        raise StageError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"{path}: damaged, no valid JSON ({error}); run consolidate again"
        raise StageError(message) from error
    found = values.get("format") if isinstance(values, dict) else None
    if found != DATASET_FORMAT:
        message = (
            f"{path}: format {found!r}, expected {DATASET_FORMAT!r}; run preprocess and "
            f"consolidate again"
        )
        raise StageError(message)
    try:
        info = _info_from_json(values)
    except (KeyError, TypeError, ValueError) as error:
        message = f"{path}: damaged ({error!r}); run consolidate again"
        raise StageError(message) from error
    if info.fingerprint != values.get("fingerprint"):
        message = f"{path}: its content does not match its fingerprint; run consolidate again"
        raise StageError(message)
    return info


def _info_from_json(values: Mapping[str, Any]) -> DatasetInfo:
    """What `dataset_info_to_json` described; raises what a field that is missing or wrong does."""
    fields = {key: value for key, value in values.items() if key not in ("format", "fingerprint")}
    fields["shards"] = tuple(ShardInfo(**shard) for shard in fields["shards"])
    fields["index"] = IndexInfo(**fields["index"])
    for name in ("image_mean", "image_std"):
        fields[name] = tuple(fields[name])
    for number, shard in enumerate(fields["shards"]):
        if shard.name != shard_name(number):  # a path elsewhere would be staged from, and to, there
            message = f"shard {number} is called {shard.name!r}, not {shard_name(number)}"
            raise ValueError(message)
    return DatasetInfo(**fields)
