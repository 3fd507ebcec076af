"""Facts about the data set that a model needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.models.layouts.pixel_scale import PixelScale
from slurm_jobs.base.errors import StageConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    """Facts from `dataset.json` and from its tokenizer."""

    info: DatasetInfo
    eos_token_id: int
    """Token that ends an answer."""
    vocab_size: int
    """Number of tokens of the tokenizer."""
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    """Number of each token; empty unless the tokenizer was loaded."""
    tokenizer: PreTrainedTokenizerFast | None = None
    """The tokenizer; None unless it was loaded."""

    @property
    def pixel_scale(self) -> PixelScale:
        """Scaling of bytes by the processor."""
        info = self.info
        return PixelScale.of_processor(info.image_mean, info.image_std, info.rescale_factor)


def read_facts(info: DatasetInfo, tokenizer: PreTrainedTokenizerFast) -> DataFacts:
    """Combine the facts of the data set and its tokenizer.

    Raises:
        StageConfigError: the tokenizer has no end token.
    """
    if tokenizer.eos_token_id is None:
        message = f"tokenizer {tokenizer.name_or_path}: no eos_token; generation would never end"
        raise StageConfigError(message)
    return DataFacts(
        info=info,
        eos_token_id=tokenizer.eos_token_id,
        vocab_size=len(tokenizer),
        vocabulary=tokenizer.get_vocab(),
        tokenizer=tokenizer,
    )


def load_tokenizer(processor_dir: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a processor folder, without access to a hub."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        processor_dir, local_files_only=True, trust_remote_code=False
    )
    return cast("PreTrainedTokenizerFast", tokenizer)  # `preprocess` refuses slow ones
