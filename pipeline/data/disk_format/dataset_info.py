"""`dataset.json`: description of a finished data set; its presence proves it complete.

```
dataset.json  index.arrow  rejects.jsonl  processor/  shards/shard-000000.tar ...  held_out/
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

from slurm_jobs.base.errors import StageError
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.dataset_folder import INFO_NAME, shard_name
from slurm_jobs.formats.processors.model_types import ImageKind

DATASET_FORMAT = "slurm-jobs-dataset-2"
REJECTS_NAME = "rejects.jsonl"
PACKS_DIR = "packs"
"""Folder of packs that trainings computed; computed again if missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardInfo:
    """Name, size and checksum of one shard."""

    name: str
    """`shard-000000.tar`."""
    num_bytes: int
    xxh3: str
    """xxh3-64 of the file, in hexadecimal."""
    num_samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexInfo:
    """Size and checksums of the index."""

    num_bytes: int
    """Size of the file."""
    xxh3: Mapping[str, str]
    """xxh3-64 of the stored values of each column, in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestInfo:
    """One of several manifests that a data set was made of."""

    name: str
    path: str
    """Its path when it was preprocessed."""
    num_rows: int
    num_rejected: int
    """Rows that became no sample."""
    num_samples: int
    """Samples of the data set that are from it, copies included."""
    num_tokens: int
    """Tokens of these samples."""

    @property
    def num_prepared(self) -> int:
        """Samples that its rows became, each once."""
        return self.num_rows - self.num_rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutInfo:
    """Number and checksums of the rows that are evaluated instead of trained on."""

    num_rows: int
    rows_xxh3: str
    """xxh3-64 of the manifest of these rows, in hexadecimal."""
    pictures_xxh3: str
    """xxh3-64 of the archive of their pictures, in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """Content of `dataset.json`."""

    num_samples: int
    num_shards: int
    num_tokens: int
    """Image tokens included."""
    num_images: int
    """Stored images; for tiled images, all tiles."""
    seed: int
    """Seed of the permutation of all samples."""
    image_kind: ImageKind
    image_height: int | None
    """Height of every stored image; None if `native`."""
    image_width: int | None
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float
    """Factor for uint8 pixels, applied before mean and deviation."""
    image_token: str
    image_token_id: int
    pad_token_id: int
    num_image_tokens: int | None
    """Image tokens of one stored image; None where they depend on its size."""
    patch_size: int | None
    """Side of a patch in pixels; a `native` image has a whole number of patches. None for other
    kinds."""
    merge_size: int | None
    """Side, in patches, of the square that becomes one token of a `native` image; else None."""
    temporal_patch_size: int | None
    """Number of times the model repeats a `native` image in time; else None."""
    image_format: str
    """`ImageFormat` of the `preprocess` stage's config."""
    preprocess: Mapping[str, Any]
    """Settings that shaped the samples: limits, prompts, hashes of manifest and processor,
    versions."""
    shards: tuple[ShardInfo, ...]
    index: IndexInfo
    rejects_xxh3: str | None = None
    """xxh3-64 of `rejects.jsonl`, in hexadecimal; None in a `dataset.json` of an older version."""
    processor_sha256: Mapping[str, str] | None = None
    """SHA-256 of each file of `processor/` by name, in hexadecimal; None in a `dataset.json` of an
    older version."""
    manifests: tuple[ManifestInfo, ...] | None = None
    """Manifests whose samples are mixed, in the order of their rows; None, and not in the file, if
    `preprocess` read a single one."""
    held_out: HeldOutInfo | None = None
    """Held-out rows; None if `preprocess` held out none, and then not in `dataset.json`."""

    @property
    def num_rejected(self) -> int:
        """Rows that became no sample."""
        if self.manifests is not None:
            return sum(manifest.num_rejected for manifest in self.manifests)
        return int(self.preprocess["num_rows"]) - self.num_samples

    @property
    def end_key(self) -> int:
        """Number above all keys: rows have their numbers, and each copy those after all rows."""
        num_copies = max(
            (-(-each.num_samples // max(1, each.num_prepared)) for each in self.manifests or ()),
            default=1,
        )
        return int(self.preprocess["num_rows"]) * num_copies

    @property
    def num_bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """xxh3-128 over all fields but manifests, held-out rows and checksums of other files.

        Equal samples have equal fingerprints. So copies on nodes and checkpoints stay valid if
        only the rejects, or the version that wrote these checksums, differ. (`preprocess`
        covers the processor's files, and the index the mixture.)
        """
        values = dataclasses.asdict(self)
        del values["rejects_xxh3"], values["processor_sha256"]
        del values["manifests"], values["held_out"]
        return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def dataset_info_to_json(info: DatasetInfo) -> dict[str, Any]:
    """Return the values of `dataset.json`."""
    values = dataclasses.asdict(info)
    if info.manifests is None:
        del values["manifests"]
    if info.held_out is None:
        del values["held_out"]
    return {"format": DATASET_FORMAT, **values, "fingerprint": info.fingerprint}


def read_dataset_info(dataset_dir: Path) -> DatasetInfo:
    """Read a data set's `dataset.json`.

    Raises:
        StageError: it is missing (consolidate did not finish), not readable by this user,
            damaged, edited by hand, or has another format.
    """
    path = dataset_dir / INFO_NAME
    try:
        values = json.loads(read_bytes(path))
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
    version = values.get("format") if isinstance(values, dict) else None
    if version != DATASET_FORMAT:
        message = (
            f"{path}: format {version!r}, expected {DATASET_FORMAT!r}; run preprocess and "
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
    """Parse the values of `dataset_info_to_json`; a missing or wrong field raises an error."""
    fields = {key: value for key, value in values.items() if key not in ("format", "fingerprint")}
    fields["shards"] = tuple(ShardInfo(**shard) for shard in fields["shards"])
    fields["index"] = IndexInfo(**fields["index"])
    if fields.get("manifests") is not None:
        fields["manifests"] = tuple(ManifestInfo(**each) for each in fields["manifests"])
    if fields.get("held_out") is not None:
        fields["held_out"] = HeldOutInfo(**fields["held_out"])
    for name in ("image_mean", "image_std"):
        fields[name] = tuple(fields[name])
    for number, shard in enumerate(fields["shards"]):
        # Another path would be staged from, and to, outside the folder.
        if shard.name != shard_name(number):
            message = f"shard {number} is called {shard.name!r}, not {shard_name(number)}"
            raise ValueError(message)
    return DatasetInfo(**fields)
