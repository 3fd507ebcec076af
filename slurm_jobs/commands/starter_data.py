"""Data, model and limits for the spec that `init` writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.commands.starter.archive_members import member_syntax
from slurm_jobs.commands.starter.folder_files import has_captions, has_images, refuse_unwritable
from slurm_jobs.commands.starter.suffixes import IMAGE_SUFFIXES
from slurm_jobs.shared.configs.stages import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS
from slurm_jobs.shared.errors import InputError, PathExpansionError, StageConfigError
from slurm_jobs.shared.expand import expand_typed
from slurm_jobs.shared.manifests.image_paths import place_of
from slurm_jobs.shared.manifests.messages import Content
from slurm_jobs.shared.manifests.row_sizes import RowSize, image_tokens
from slurm_jobs.shared.manifests.table_files import NoTableError, TableFiles, find_table
from slurm_jobs.shared.manifests.values import RowOptions
from slurm_jobs.shared.processors.folder import read_processor
from slurm_jobs.shared.processors.image_plans import (
    FixedImages,
    IdeficsTiles,
    ImageRules,
    LlavaNextTiles,
    NativeImages,
    Size,
)
from slurm_jobs.shared.processors.model_types import SMALL_VLM
from slurm_jobs.shared.regular_files import open_regular, read_bytes
from slurm_jobs.shared.texts.control_characters import plain

# Facts that are known before a first spec is written: rooms of the cluster, data, model.


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Partition as one kind of job can use it: the smallest of its fitting nodes."""

    partition: str | None
    """None: this machine, or a cluster that names no partitions."""
    num_nodes: int
    cpus: int
    """CPUs of each node."""
    mem_gb: float
    """Memory of each node; 1 GB is 1024 of Slurm's units."""
    gpu_type: str = ""
    """Name in gres; empty if the type has none, or there are no GPUs."""
    gpus: int = 0
    """GPUs of each node."""
    max_time_min: float | None = None
    """The partition's limit, or that of its QOS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Cluster or local machine, and where its jobs go."""

    name: str
    """Name of the profile's file."""
    is_slurm: bool
    cpu: Room
    gpu: Room | None
    """None: there are no GPUs, or none that this user may use."""
    gpu_rooms: tuple[Room, ...] = ()
    """All rooms with GPUs, the best first."""
    accounts: tuple[str, ...] = ()
    account: str | None = None
    """Named in the profile; None leaves Slurm's default."""
    node_local_dir: str = "/tmp"  # noqa: S108 - the stage makes a private folder in it
    limits: ClusterLimits = ClusterLimits()  # noqa: RUF009 - frozen
    notes: tuple[str, ...] = ()
    """Information that could not be queried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """List of samples."""

    manifest: str
    """Path, as the spec names it."""
    image_root: str | None = None
    """Folder of the images, if it is not the manifest's."""
    num_rows: int | None = None
    """None: not counted."""
    is_exact: bool = True
    """True if `num_rows` was counted row by row; otherwise it is the number of lines."""
    evaluation: str | None = None
    """Manifest of held-out rows, with images in `image_root` too; None: there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """Model to fine-tune."""

    name: str
    """A folder, as the spec names it, or `OWNER/NAME` on the Hugging Face hub."""
    is_on_hub: bool
    weights_gb: float | None = None
    """Size of its files in 16 bits; None if unknown."""
    is_small_vlm: bool = False
    """True for the small models that `train` exports."""


# Inspection of a user's data: a manifest, or a folder of images.


_HUGE_BYTES = 4 * 2**30
"""A longer text is not read to count its rows: a busy file server takes seconds per gigabyte."""
_PIECE_BYTES = 2**20


def expanded(path: Path) -> Path:
    """Return the path with `~` and variables replaced, unless it exists as it is.

    Raises:
        InputError: there is no such user or variable.
    """
    try:
        return Path(expand_typed(str(path)))
    except PathExpansionError as error:
        message = f"{plain(str(path))}: {error}"
        raise InputError(message) from error


def existing(path: Path) -> Path:
    """Return the expanded path of data.

    Raises:
        InputError: it does not exist.
    """
    path = expanded(path)
    try:
        path.stat()
    except OSError as error:
        raise _not_read(path, error) from error
    return path


def _not_read(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: {error.strerror}; name the file of a manifest, or a folder")


def inspect_data(manifest: Path, *, as_named: str) -> Data:
    """Count the rows of a manifest, a file or a folder that is a table, if that is quick.

    `as_named` is its path in the spec.

    Raises:
        InputError: it does not exist, cannot be read, or is an image, or a folder but not a
            table.
    """
    refuse_unwritable([manifest])
    if manifest.suffix.lower() in IMAGE_SUFFIXES and manifest.is_file():
        message = f"{manifest} is an image: name its folder, or a manifest"
        raise InputError(message)
    member = member_syntax(manifest)
    if member is not None:
        message = (
            f"{manifest} is an archive of images: unpack it and name the folder, or write a "
            f"manifest that lists its members with their texts, as `{member}` (docs/manifests.md)"
        )
        raise InputError(message)
    try:
        table = find_table(manifest)
        if table is not None:
            return Data(manifest=as_named, num_rows=_table_rows(table))
        if manifest.stat().st_size > _HUGE_BYTES:
            return Data(manifest=as_named)
        with open_regular(manifest) as stream:
            start = stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
            if start.startswith(b"["):  # a JSON list: its lines are not rows
                return Data(manifest=as_named)
            stream.seek(0)
            num_rows, last = 0, b"\n"
            while piece := stream.read(_PIECE_BYTES):
                num_rows, last = num_rows + piece.count(b"\n"), piece[-1:]
    except NoTableError as error:
        of_images = ". It holds no images either" if manifest.is_dir() else ""
        message = f"{manifest}{error}{of_images}"
        raise InputError(message) from error
    except OSError as error:
        raise _not_read(manifest, error) from error
    num_rows += last != b"\n"
    if manifest.suffix.lower() == ".csv":
        num_rows = max(0, num_rows - 1)
    return Data(manifest=as_named, num_rows=num_rows, is_exact=False)


def _table_rows(table: TableFiles) -> int | None:
    """Return the rows of Parquet from its metadata; None for other formats, or without pyarrow."""
    from slurm_jobs.commands.read_spec import has_pyarrow

    if table.kind != "parquet" or not has_pyarrow():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(pa.ArrowException, OSError):  # damaged: `check` reports it
        return sum(int(pq.ParquetFile(file).metadata.num_rows) for file in table.files)
    return None


def is_image_folder(folder: Path) -> bool:
    """Check whether a path is a folder that holds images and is not a table.

    A `metadata.parquet` next to images lists them, and makes no table of the folder. Neither does a
    table without a picture, such as the URLs that images were downloaded from, if images have texts
    next to them.
    """
    if not folder.is_dir():
        return False
    try:
        if (folder / "metadata.parquet").is_file() and has_images(folder):
            return True
        return find_table(folder) is None or captions_win(folder, folder)
    except NoTableError:
        return has_images(folder)
    except OSError:
        return False


def captions_win(folder: Path, listing: Path) -> bool:
    """Check whether texts next to images of a folder are its data rather than a list of it.

    That is so unless a row of the list has a picture that is there.
    """
    from slurm_jobs.commands.read_spec import disk_files

    files, manifest = disk_files(), str(listing.absolute())
    root = files.image_root_of(manifest)
    rows = files.first_rows(manifest, RowOptions())
    if any(_is_there(image, root) for row in rows for image in row.images):
        return False
    return has_captions(folder)  # last, because it may list millions of files


def _is_there(image: Content, root: str) -> bool:
    if image.problem or image.data is not None:
        return not image.problem
    with suppress(OSError, ValueError):
        return Path(place_of(image.value, root)[0]).is_file()
    return False


# Limits of samples and images, chosen so that the rows of a data set fit.


_LARGE: tuple[Size, ...] = ((4032, 3024), (3024, 4032), (4000, 4000), (1600, 500), (500, 1600))
"""Sizes for which the tokens of an image are counted if no image could be read."""
_BYTES_A_TOKEN = 2
"""Bytes of text per token, on the safe side: tokenizers of English take three to four."""
_TURN_TOKENS = 64
"""Room for the chat template, the system message and the prompt."""
_TEXT_TOKENS = 768
"""Minimum room for texts, so that rows that were not read fit, too."""
_FEWEST_TOKENS = 256
"""Minimum for an image: Qwen's lower limit for legible pictures, 256 * 28 * 28 pixels."""
_STEP = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Limits that a spec is written with."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    image_pixels: int | None = None
    """`image_pixels.max`; None keeps the processor's limit."""
    max_images: int = DEFAULT_MAX_IMAGES
    reason: str = ""
    """Reason why a limit is not the default, for a comment."""
    notes: tuple[str, ...] = ()
    """Messages about the rows and the choice."""


def choose_lengths(rows: Sequence[RowSize], rules: ImageRules | None) -> Lengths:
    """Return the limits with which the rows fit.

    There are no rows if no image could be read, and no rules if the model's processor is unknown.
    Rows of text alone need no limit of images, and keep the default.
    """
    lengths = _token_lengths(rows, rules)
    most = max((len(row.images) for row in rows), default=0)
    if most <= DEFAULT_MAX_IMAGES:
        return lengths
    note = f"max_images is {most}, the largest number in a row that was read"
    return replace(lengths, max_images=most, notes=(*lengths.notes, note))


def _token_lengths(rows: Sequence[RowSize], rules: ImageRules | None) -> Lengths:
    if rules is None:
        note = "the model's image processor is not known here, so lengths were not checked"
        return Lengths(notes=(f"{note}: max_tokens is {DEFAULT_MAX_TOKENS}",))
    if rows and not any(row.images for row in rows):
        return Lengths()
    seen = rows or [RowSize(images=(size,), num_text_bytes=0) for size in _LARGE]
    lengths = [row_length(row, rules) for row in seen]
    about = (
        "image sizes are not known here; a photo of 4032 x 3024 pixels would have about "
        f"{lengths[0]:,} tokens with the model's processor"
    )
    if rows:
        sizes = sorted((size for row in rows for size in row.images), key=math.prod)
        width, height = sizes[len(sizes) // 2] if sizes else (0, 0)
        over = sum(length > DEFAULT_MAX_TOKENS for length in lengths)
        lost = f"; {over / len(rows):.0%} exceed {DEFAULT_MAX_TOKENS:,}" if over else ""
        about = (
            f"lengths: {len(rows):,} rows read, images of {width} x {height} in the median; with "
            f"the model's processor about {median(lengths):,.0f} tokens, at most "
            f"{max(lengths):,}{lost}"
        )
    if max(lengths) <= DEFAULT_MAX_TOKENS:
        return Lengths(notes=(about,) if rows else ())
    if not isinstance(rules, NativeImages):
        most = _STEP * math.ceil((max(lengths) + (0 if rows else _TEXT_TOKENS)) / _STEP)
        reason = "so that the tokens of the images fit"
        return Lengths(
            max_tokens=most, reason=reason, notes=(about, f"max_tokens is {most}, {reason}")
        )
    # Images can be reduced; `max_tokens` grows only if they must not be.
    text = max(_TEXT_TOKENS, *(row_length(row, None) for row in seen))
    num_images = max(1, *(len(row.images) for row in seen))
    side = rules.patch_size * rules.merge_size
    tokens = max((DEFAULT_MAX_TOKENS - text) // num_images, _FEWEST_TOKENS)
    pixels = max(tokens * side**2, rules.min_pixels)
    tokens = math.ceil(pixels / side**2)
    most = max(DEFAULT_MAX_TOKENS, _STEP * math.ceil((text + num_images * tokens) / _STEP))
    reason = f"{tokens:,} tokens an image at most, so that samples fit in max_tokens"
    more = f", max_tokens {most}" if most != DEFAULT_MAX_TOKENS else ""
    return Lengths(
        max_tokens=most,
        image_pixels=pixels,
        reason=reason,
        notes=(about, f"image_pixels.max is {pixels}{more}: {reason}"),
    )


def row_length(row: RowSize, rules: ImageRules | None) -> int:
    """Return how many tokens a row with its prompt may have; None for `rules` leaves images out."""
    text = _TURN_TOKENS + math.ceil(row.num_text_bytes / _BYTES_A_TOKEN)
    return text if rules is None else text + image_tokens(row, rules)


# Inspection of the model to fine-tune: a folder, or a name on the hub.


_GRIDS = ((672, 336), (336, 672), (672, 672), (336, 1008), (1008, 336))


def _native(*, patch_size: int, pixels: tuple[int, int]) -> NativeImages:
    return NativeImages(
        patch_size=patch_size,
        merge_size=2,
        temporal_patch_size=2,
        min_pixels=pixels[0],
        max_pixels=pixels[1],
        image_token="",
        wrapping=("", ""),
    )


def _tiles(*, longest_edge: int, tile_size: int, num_image_tokens: int) -> IdeficsTiles:
    return IdeficsTiles(
        longest_edge=longest_edge,
        tile_size=tile_size,
        split=True,
        image_token="",
        fake_token="",
        global_token="",
        num_image_tokens=num_image_tokens,
    )


_HUB_RULES: tuple[tuple[str, ImageRules], ...] = (
    (r"qwen2(\.5)?-vl", _native(patch_size=14, pixels=(3_136, 12_845_056))),
    (r"qwen3-vl", _native(patch_size=16, pixels=(65_536, 16_777_216))),
    (r"smolvlm", _tiles(longest_edge=1536, tile_size=384, num_image_tokens=81)),
    (r"idefics3", _tiles(longest_edge=1456, tile_size=364, num_image_tokens=169)),
    (
        r"llava-(v1\.6|next)",
        LlavaNextTiles(
            tile_size=336,
            grids=_GRIDS,
            patch_size=14,
            num_additional_tokens=1,
            drops_first_token=True,
            image_token="",
        ),
    ),
    (
        r"llava-v?1\.5",
        FixedImages(height=336, width=336, shortest_edge=336, image_token="", num_image_tokens=576),
    ),
)
"""Image limits of published models by their names on the hub, from their processors."""
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_BILLIONS = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")
DEFAULT_MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
"""A single GPU of 16 GB holds it with LoRA, and the tests train its family."""


def inspect_weights(name: str, *, as_named: str) -> Model:
    """Return what kind of name it is, and the size of the weights.

    `as_named` is the same path in the spec.

    Raises:
        InputError: neither a folder with `config.json` nor a name on the hub.
    """
    folder = expanded(Path(name))
    if (folder / "config.json").is_file():
        values = None
        with suppress(OSError, ValueError, RecursionError):
            values = json.loads(read_bytes(folder / "config.json"))
        model_type = values.get("model_type") if isinstance(values, dict) else None
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        return Model(
            name=as_named,
            is_on_hub=False,
            weights_gb=size / 1e9 if size else None,
            is_small_vlm=model_type == SMALL_VLM,
        )
    if folder.is_dir():
        message = (
            f"{folder} has no config.json: name the folder of a model as `from_pretrained` takes it"
        )
        raise InputError(message)
    if not _ON_HUB.fullmatch(name):
        message = f"{name}: neither a folder nor a name on the hub (OWNER/NAME)"
        raise InputError(message)
    match = _BILLIONS.search(name)
    return Model(name=name, is_on_hub=True, weights_gb=2 * float(match[1]) if match else None)


def hub_note(name: str) -> str:
    """Return the note on a name that may also be meant as a folder."""
    return f"there is no folder {name} here, so it is taken as a name on the Hugging Face hub"


def image_rules(name: str) -> ImageRules | None:
    """Return what a model's processor makes of images; None where that is not known.

    The name is a folder, or a model on the hub, of which some are known.
    """
    folder = expanded(Path(name))
    if not folder.is_dir():
        matching = (rules for words, rules in _HUB_RULES if re.search(words, name.lower()))
        return next(matching, None)
    try:
        return read_processor(folder).images
    except (StageConfigError, OSError):  # `check` reports what is wrong with it
        return None
