"""What a model needs to know of the data set that it is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.info import DatasetInfo
from pipeline.models.pixels import PixelScale
from slurm_jobs.common.errors import StageConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    """The data set's own words, and its tokenizer's."""

    info: DatasetInfo
    eos_token_id: int
    """The token that ends an answer."""
    vocab_size: int
    """Tokens that the tokenizer knows."""
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    """Their numbers; empty where nobody asked the tokenizer."""
    tokenizer: PreTrainedTokenizerFast | None = None
    """Itself; None where nobody asked."""

    @property
    def pixel_scale(self) -> PixelScale:
        """What the processor does with bytes."""
        info = self.info
        return PixelScale.of_processor(info.image_mean, info.image_std, info.rescale_factor)


def read_facts(info: DatasetInfo, tokenizer: PreTrainedTokenizerFast) -> DataFacts:
    """Put together what the data set and its tokenizer say.

    Raises:
        StageConfigError: the tokenizer ends no answer.
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
    """The tokenizer of a processor folder; no hub is asked."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(processor_dir, local_files_only=True)
