"""What model and evaluation need to know of a data set and its processor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.info import DatasetInfo
from slurm_jobs.common.errors import StageConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PIXEL_MAX = 255
_OTHER_KINDS = {"tiled": "cut into tiles", "native": "each of a size of its own"}


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    """Facts of images and tokens; fits `pipeline.models.build.DatasetFacts`."""

    image_size: int
    """Side of the square images in pixels."""
    image_mean: tuple[float, ...]
    """Of each channel, after scaling to 0..1."""
    image_std: tuple[float, ...]
    """Of each channel, after scaling to 0..1."""
    image_token_id: int
    pad_token_id: int
    eos_token_id: int
    vocab_size: int
    num_image_tokens: int


def check_images(info: DatasetInfo) -> None:
    """Refuse images that no model here takes, before anything is copied or built.

    Raises:
        StageConfigError: they are tiles, or of sizes of their own.
    """
    if info.image_kind != "fixed":
        message = (
            f"the data set's images are {info.image_kind} ({_OTHER_KINDS[info.image_kind]}); model "
            f"type small_vlm takes one of a fixed size for each; preprocess with a processor of "
            f"one size (SigLIP's, CLIP's)"
        )
        raise StageConfigError(message)


def read_facts(info: DatasetInfo, tokenizer: PreTrainedTokenizerFast) -> DataFacts:
    """Put together what the data set and its tokenizer say.

    Raises:
        StageConfigError: the images are not square, or the tokenizer ends no answer.
    """
    if info.image_height != info.image_width:
        message = (
            f"the data set's images are {info.image_height} x {info.image_width} pixels: "
            "model type small_vlm takes square ones; preprocess with such a processor"
        )
        raise StageConfigError(message)
    if tokenizer.eos_token_id is None:
        message = f"tokenizer {tokenizer.name_or_path}: no eos_token; generation would never end"
        raise StageConfigError(message)
    assert info.image_height is not None  # as `check_images` has seen to
    assert info.num_image_tokens is not None
    # (pixel * rescale - mean) / std, written for pixels scaled by 1/255.
    range_scale = _PIXEL_MAX * info.rescale_factor
    return DataFacts(
        image_size=info.image_height,
        image_mean=tuple(mean / range_scale for mean in info.image_mean),
        image_std=tuple(std / range_scale for std in info.image_std),
        image_token_id=info.image_token_id,
        pad_token_id=info.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        vocab_size=len(tokenizer),
        num_image_tokens=info.num_image_tokens,
    )


def load_tokenizer(processor_dir: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a processor folder; no hub is asked."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(processor_dir, local_files_only=True)
