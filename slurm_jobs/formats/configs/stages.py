"""Configs of the built-in stages but `download` and `train`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from slurm_jobs.formats.config import (
    Bounds,
    CheckedConfig,
    Count,
    CountOrZero,
    InputPath,
    NamedPath,
    Share,
)
from slurm_jobs.formats.configs.proportions import Proportion, proportion_problems

WARMUP_STEPS = 5
"""Steps that statistics leave out at the start of each attempt; later ones are rarely slower
because of compilation, cold caches or allocator growth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsolidateConfig(CheckedConfig):
    """Shuffling of the samples of all parts into shards of equal size."""

    seed: CountOrZero = 0
    """Seed of the single permutation over all samples."""
    num_shards: Count | None = None
    """Number of shards, which is never more than there are samples. By default `shard_mb`
    decides."""
    samples_per_shard: Count | None = None
    """Most samples in a shard, instead of `num_shards`."""
    shard_mb: Count = 256
    """Target size of a shard, in 10^6 bytes, if neither of the other two is given."""
    max_reject_share: Share | None = None
    """Largest share of the manifest's rows, rounded up to whole rows, that may be unusable; above
    it the stage fails. By default the value of `preprocess`; set it here to check finished parts
    again."""
    max_too_long_share: Share | None = None
    """The same for samples that `preprocess` left out as too long."""
    text_only: bool | None = None
    """Accept a data set in which no sample has a picture. By default the value of `preprocess`; set
    it here to accept finished parts."""
    mixture: dict[str, Proportion] | None = None
    """Shares of manifests by name, instead of those that `preprocess` gives them in its list. A
    change of them here keeps the finished parts: `{vqa: {weight: 0.3}, captions: {weight: 1}}`."""
    num_read_threads: Count = 16
    """Threads of each array task that read samples ahead. They mostly wait, so more of them help on
    a slow shared file system, whatever the number of cores."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.num_shards is not None and self.samples_per_shard is not None:
            yield (
                f"num_shards is {self.num_shards} and samples_per_shard is "
                f"{self.samples_per_shard}; give one of the two"
            )
        for name, proportion in (self.mixture or {}).items():
            yield from proportion_problems({f"mixture.{name}": proportion}, is_whole=False)


CHOSEN_REASONS = {
    "too_long": "max_tokens",
    "images_too_long": "max_tokens",
    "too_many_images": "max_images",
}
"""Reasons of rejects for which the user chose `too_long`, with the limit that is exceeded. These
rows are listed and counted, but not broken."""

HELD_OUT: Final = "held_out"
"""Reason of rejects that are evaluated instead of trained on (`held_out` of `preprocess`)."""
PARTLY_HELD_OUT: Final = "partly_held_out"
"""Reason of rejects of which some pictures are held out, and others are trained on."""
NOT_BROKEN = frozenset({*CHOSEN_REASONS, HELD_OUT, PARTLY_HELD_OUT})
"""Reasons of rejects that a setting asked for."""

DEFAULT_PROMPT = "Describe the image."
"""Default prompt about an image with a caption."""

DEFAULT_MAX_TOKENS = 2048
DEFAULT_MAX_IMAGES = 8
DEFAULT_MAX_PIXELS = 100_000_000
DEFAULT_MAX_IMAGE_MB = 512

TooLong = Literal["drop", "truncate_text", "error"]
ImageFormat = Literal["png", "jpeg", "webp", "webp_lossless", "raw"]
ImageDecoding = Literal["exact", "fine", "fast"]
ChatTemplateName = Literal["glm-4v", "glm-4.6v", "llava-1.5", "llava-next-mistral", "qwen3.5"]
"""Chat templates that come with this package (`pipeline.preprocess.chat.chat_templates`)."""

DEFAULT_IMAGE_DECODING: ImageDecoding = "fine"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedProcessor:
    """Processor made of the folders of a `small_vlm`'s two parts."""

    images: InputPath
    """Folder of a SigLIP, or of a SigLIP 2 of fixed resolution, with `config.json` and the image
    processor; its weights are not needed here."""
    text: InputPath
    """Folder of a language model, with its tokenizer."""
    image_token: str = "<|image_pad|>"  # noqa: S105 - a token of text
    """Token of that tokenizer that represents a patch of an image. Qwen2.5's has this one."""
    template: InputPath | None = None
    """File of a chat template (Jinja) with images; `{% generation %}` marks are allowed but not
    needed. Without one: ChatML, with the default system prompt of the tokenizer's own template if
    that is also ChatML."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePixels(CheckedConfig):
    """Limits for the pixels of an image after the processor resized it: width times height."""

    min: Count | None = None
    """Smaller images are enlarged to this area; by default the processor's own limit."""
    max: Count | None = None
    """Larger images are reduced to this area; by default the processor's own limit."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.min is None and self.max is None:
            yield "image_pixels: set min, max or both, in pixels (width times height)"
        if self.min is not None and self.max is not None and self.min > self.max:
            yield f"image_pixels: min is {self.min}, more than max, which is {self.max}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Columns, or keys of a JSON row, by meaning; the others are known by their names."""

    image: str | None = None
    """Picture, or list of pictures: paths, or bytes."""
    text: str | None = None
    """Answer of the assistant to `prompt`."""
    prompt: str | None = None
    """Words of the user; without such a column the config's `prompt` is used."""
    system: str | None = None
    """System message."""
    messages: str | None = None
    """Conversation: turns of `role` and `content`, of `from` and `value`, or pairs of `user` and
    `assistant`."""
    ignore: tuple[str, ...] = ()
    """Columns, or keys of turns, to ignore silently. A row with content in any other unknown key (a
    video, a second picture, tools) is rejected. So is a row without its own picture if an ignored
    key holds a picture, video or audio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutConfig(CheckedConfig):
    """Rows that are evaluated instead of trained on."""

    share: Annotated[float, Bounds(gt=0, lt=1)]
    """Share of the pictures that are held out, by a hash of their files' bytes. Rows with the same
    picture therefore stay together, but a copy in another format or size counts as another picture.
    A row with several pictures is held out if all of them are, and trained on if none is; the
    others are left out, and counted. For a row without a picture the hash is that of its text."""


KNOWN_COLUMNS = Columns()
"""Columns that are known by their names alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestEntry(Proportion):
    """One of several manifests that make a data set together."""

    path: InputPath
    """The manifest."""
    name: str | None = None
    """Name in the report, in `dataset.json` and in `mixture` of `consolidate`; by default that of
    the file or folder, without its suffix."""
    columns: Columns = KNOWN_COLUMNS
    """Columns of this manifest; by default those of the stage."""
    image_root: InputPath | None = None
    """Folder that its relative image paths start from; by default that of the stage, or else the
    manifest's own folder."""

    @property
    def label(self) -> str:
        """Return its name, or else that of its file."""
        return self.name or PurePosixPath(self.path).stem or self.path


ManifestList = tuple[InputPath | ManifestEntry, ...]


def entries_of(manifest: ManifestList | str) -> tuple[ManifestEntry, ...]:
    """Return all manifests; one that is not in a list is an entry with only a path."""
    paths = (manifest,) if isinstance(manifest, str) else manifest
    return tuple(ManifestEntry(path=each) if isinstance(each, str) else each for each in paths)


def list_problems(manifest: ManifestList | str) -> Iterator[str]:
    """Yield broken rules of a list of manifests, which is at `manifest` of its config."""
    if isinstance(manifest, str):
        return
    if not manifest:
        yield "manifest is an empty list: name the manifests that have the rows"
    places: dict[str, str] = {}
    entries = {f"manifest.{number}": entry for number, entry in enumerate(entries_of(manifest))}
    for place, entry in entries.items():
        if entry.label in places:
            yield (
                f"{place} is called `{entry.label}`, as {places[entry.label]} is: give one of them "
                "another `name`"
            )
        places[entry.label] = place
    yield from proportion_problems(entries)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreprocessConfig(CheckedConfig):
    """Conversion of a manifest's rows to tokens and resized images."""

    manifest: ManifestList | InputPath
    """List of samples: CSV, JSON lines, a JSON list, Parquet or WebDataset tars (a file or a folder
    of them), or a folder that `save_to_disk` of `datasets` wrote. A row has a picture with a
    caption, a question with its answer, chat `messages`, or LLaVA's `conversations`. A list of
    manifests makes one data set of them: `[{path: captions.jsonl, repeat: 2}, {path: vqa.json,
    num_samples: 50000}]`."""
    columns: Columns = KNOWN_COLUMNS
    """Columns to read, if their names do not show their meaning: `{image: photo, text:
    description}`."""
    processor: InputPath | ComposedProcessor
    """Local folder with the tokenizer, its chat template, and `preprocessor_config.json`; no hub is
    contacted. Or the folders of a small model's two parts: `{images: models/siglip, text:
    models/Qwen2.5-0.5B-Instruct}`."""
    chat_template: ChatTemplateName | InputPath | None = None
    """Chat template instead of the one in the processor's folder: a file (Jinja), or one of this
    package: `glm-4v` (also for GLM-OCR), `glm-4.6v`, `llava-1.5` (also for LLaVA-NeXT with Vicuna),
    `llava-next-mistral`, `qwen3.5`. The published templates of these models cannot be trained with.
    The exported model gets it, too. For a processor of two folders set its `template`."""
    image_root: InputPath | None = None
    """Folder that relative image paths start from; by default the manifest's own folder. Members of
    archives (tar or zip) are written `photos.tar::cats/1.jpg`."""
    images_within: NamedPath | None = None
    """Folder in or below which images may be, in addition to `image_root` (by default the
    manifest's). A row with an image elsewhere is rejected, so that another person's list cannot
    bring private files into a data set. `/` allows all folders."""
    max_tokens: Count = DEFAULT_MAX_TOKENS
    """Longest sample in tokens, image tokens included."""
    max_images: CountOrZero = DEFAULT_MAX_IMAGES
    """Most images in one sample; `too_long` applies to samples with more."""
    image_pixels: ImagePixels | None = None
    """Pixels of a resized image, instead of the processor's own limits (`min_pixels` and
    `max_pixels`, or `size.shortest_edge` and `size.longest_edge`). `{max: 1003520}` gives an image
    of Qwen2.5-VL at most 1,280 tokens. Only for processors that keep the proportions of images
    (Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5). Evaluation and the exported model use the same
    limits."""
    text_only: bool = False
    """Accept a manifest in which no row has a picture. Without it, such data is an error, because
    mostly the key of the picture is one that is not read. Pictures are read in any case, and rows
    with and without pictures may be mixed."""
    too_long: TooLong = "drop"
    """Action for a sample over `max_tokens` or `max_images`. `drop` leaves it out. `truncate_text`
    cuts the end of the text, but never image tokens; a sample with too many of these, or too many
    images, is left out. `error` fails the stage."""
    max_reject_share: Share = 0.01
    """Largest share of all rows, rounded up to whole rows, that may be unusable; above it
    `consolidate` fails. A slice that alone has more fails at once. Samples that `too_long` leaves
    out do not count."""
    max_too_long_share: Share = 0.05
    """The same for samples that `too_long` leaves out. 1 allows any number."""
    held_out: HeldOutConfig | None = None
    """Rows to evaluate instead of training on them: `{share: 0.02}`. They are in the folder
    `held_out` of the data set, with their pictures, and `train` evaluates on them. Null holds out
    none."""
    image_decoding: ImageDecoding = DEFAULT_IMAGE_DECODING
    """Method of decoding and resizing. `exact`: the pixels of the Hugging Face image processor (its
    Pillow back end); slowest. `fine`: less than half of the time; values differ by one step of 255
    here and there, and by more in scanned text. `fast`: for photographs; up to four times as fast
    as `exact`, and 28 to 49 dB away from it. docs/guides/data/image-decoding.md has the details."""
    image_format: ImageFormat = "webp_lossless"
    """Format of stored images: `webp_lossless`, `png` and `raw` keep every pixel; `jpeg` and `webp`
    are smaller and lossy; `raw` needs no decoding and the most space.
    docs/guides/data/image-decoding.md compares them, and the report shows their costs for your
    images."""
    image_quality: Annotated[int, Bounds(ge=1, le=100)] = 95
    """Quality of `image_format: jpeg` (4:4:4 sampling) and `webp` (always 4:2:0)."""
    prompt: str = DEFAULT_PROMPT
    """Words of the user for captions that have none; they follow the image, and the caption is the
    assistant's answer."""
    system_prompt: str = ""
    """System message of captions and questions whose row has no `system`; empty for none."""
    max_pixels: Count = DEFAULT_MAX_PIXELS
    """Image files with more pixels are rejected before they are decoded, to protect memory. To make
    images smaller, set `image_pixels`."""
    max_image_mb: Count = DEFAULT_MAX_IMAGE_MB
    """Image files with more than this many 10^6 bytes are rejected before they are read, to protect
    memory: each of `num_threads` holds the files of one row. 100 million pixels without compression
    have 300 (RGB) or 400 (RGBA); raise it together with `max_pixels` for whole-slide images."""
    num_threads: Count | None = None
    """Threads that decode images; by default one for each CPU that the task may use."""

    @property
    def manifests(self) -> tuple[ManifestEntry, ...]:
        """Return all manifests."""
        return entries_of(self.manifest)

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        yield from list_problems(self.manifest)
        if not isinstance(self.processor, ComposedProcessor):
            return
        if self.image_pixels is not None:
            yield (
                "image_pixels: a processor of two folders resizes every image to the one size of "
                "its encoder; leave image_pixels out"
            )
        if self.chat_template is not None:
            yield (
                f"chat_template is {self.chat_template}, and processor is made of two folders: "
                f"give `processor.template` instead"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeConfig(CheckedConfig):
    """Measurement of a job's nodes, with one task on each node."""

    budget_s: Annotated[float, Bounds(ge=1, le=3600)] = 60.0
    """Approximate seconds for all measures of a node together; each has its share."""
    file_mb: Annotated[int, Bounds(ge=1, le=65536)] = 1024
    """Most data written to each file system at a time, in units of 1,048,576 bytes; always removed.
    """
    num_small_files: Annotated[int, Bounds(ge=1, le=10_000)] = 200
    """Most small files that are created, read and removed on each file system."""
    small_file_kb: Count = 4
    """Size of a small file, in units of 1,024 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig(CheckedConfig):
    """Contents of a run's report."""

    title: str | None = None
    """Heading of the page; by default the run's name."""
    warmup_steps: CountOrZero = WARMUP_STEPS
    """Steps at the start of each attempt that statistics of steps leave out, because compilation
    and cold caches slow them."""
