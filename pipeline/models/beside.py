"""Comparison of the tokenizer and image processor in a model's folder with the data set.

Training reads neither, because numbers of tokens and pixels come from the data set. If another
processor made them, the model would learn from inputs with another meaning, and only its
answers would show it. `fit` and `towers` compare sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.models.facts import DataFacts
from pipeline.models.loading import find_folder
from pipeline.models.pixels import PixelScale
from pipeline.preprocess.tokenizer import load_tokenizer
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.processors import read_normalisation
from slurm_jobs.common.stage_config.model import ModelConfig


def check_beside(config: ModelConfig, facts: DataFacts) -> None:
    """Compare the tokenizer and the image processor of each of the model's folders.

    Files missing from a folder are not compared.

    Raises:
        StageConfigError: the data set was made with different ones.
    """
    if config.type == "hugging_face" or config.path is not None:
        folder = find_folder(config)
        _check_tokens(folder, facts, "the processor of that folder")
        _check_pixels(folder, facts, "the processor of that folder")
        return
    if config.language.path is not None:
        words = "the tokenizer of that folder (`processor.text`)"
        _check_tokens(Path(config.language.path), facts, words)
    if config.vision.path is not None:
        words = "the image processor of that folder (`processor.images`)"
        _check_pixels(Path(config.vision.path), facts, words)


def _check_tokens(folder: Path, facts: DataFacts, remedy: str) -> None:
    if not facts.vocabulary or not (folder / "tokenizer.json").is_file():
        return
    tokenizer = load_tokenizer(folder)
    wrong = _differences(tokenizer.get_vocab(), tokenizer.get_added_vocab(), facts.vocabulary)
    if wrong:
        message = (
            f"{folder}: its tokenizer and the data set's{_place(facts)} number {len(wrong)} "
            f"tokens differently ({wrong[min(wrong)]}), so the model would misread them: "
            f"preprocess with {remedy}"
        )
        raise StageConfigError(message)


def _differences(
    own: Mapping[str, int], added: Mapping[str, int], others: Mapping[str, int]
) -> dict[int, str]:
    """Describe, by their number, the tokens of `own` that `others` numbers differently.

    Additional tokens do not count, and neither do tokens with new names whose old name only
    `added` has: models have spare tokens for their users.
    """
    named = {number: token for token, number in others.items()}
    wrong = {}
    for token, number in own.items():
        if others.get(token, number) != number:
            wrong[number] = f"{token!r} is {number} and {others[token]}"
        elif token not in added and named.get(number, token) != token:
            wrong[number] = f"{number} is {token!r} and {named[number]!r}"
    return wrong


def _check_pixels(folder: Path, facts: DataFacts, remedy: str) -> None:
    found = read_normalisation(folder)
    if found is None:
        return
    scale = PixelScale.of_processor(found.image_mean, found.image_std, found.rescale_factor)
    own, data = scale.rounded(), facts.pixel_scale.rounded()
    pairs = {"image mean": (own.mean, data.mean), "image deviation": (own.std, data.std)}
    wrong = [f"{name}: model {m}, data set {d}" for name, (m, d) in pairs.items() if m != d]
    if wrong:
        message = (
            f"{found.file}: the model normalises pixels differently from the data "
            f"set{_place(facts)} ({'; '.join(wrong)}, for pixels from 0 to 1): preprocess with "
            f"{remedy}; or, if its weights were trained with the data set's values, set them in "
            "a copy of that folder"
        )
        raise StageConfigError(message)


def _place(facts: DataFacts) -> str:
    """Return the location of the data set's processor, if known."""
    return "" if facts.tokenizer is None else f" ({facts.tokenizer.name_or_path})"
