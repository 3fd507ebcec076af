"""Limits of pixels that a processor does not have are refused."""

import pytest

from tests.slurm_jobs.spec.checks.models.image_specs import models, spec
from tests.slurm_jobs.spec.conftest import Check, check

__all__ = ["check", "models"]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("processor", "limits", "words"),
    [
        ("smolvlm", "{max: 1003520}", "this is a SmolVLMImageProcessor: its limit is size.longes"),
        ("llava", "{max: 1003520}", "this is a CLIPImageProcessor: its limit is size and crop_siz"),
        ("unknown", "{max: 1003520}", "this is a NewImageProcessor: it has none of these"),
        ("qwen3_vl", "{max: 300}", "image_pixels.max is 300, less than one token"),
        ("qwen3_vl", "{max: 3000}", "set image_pixels.min, too"),
        ("qwen3_vl", "{max: 1003520}", ""),
    ],
)
def test_limits_of_images_that_the_processor_does_not_have_are_refused(
    check: Check, processor: str, limits: str, words: str
) -> None:
    text = spec(
        f"{processor}, image_pixels: {limits}", f"{{type: hugging_face, path: {processor}}}"
    )
    lines = [line for line in check(text) if "image_pixels" in line]
    assert [line.startswith("6:") and words in line for line in lines] == [True] * bool(words)
