"""Plan of an image for the processors of the Gemma models."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.formats.processors.image_plans import FixedImages


@dataclass(frozen=True, kw_only=True, slots=True)
class Gemma3Images(FixedImages):
    """Rules for a single size of all images, with text around the tokens of each: Gemma 3.

    The template prints the first mark alone. There `Gemma3Processor` puts the image's tokens
    between both marks and two empty lines, before it tokenises the text. That matters because
    line breaks next to each other are one token of Gemma's tokenizers.
    """

    wrapping: tuple[str, str]
    """Marks before and after the tokens of an image."""

    @property
    def printed_token(self) -> str:
        """Token that the chat template prints for an image."""
        return self.wrapping[0]

    @property
    def written(self) -> str:
        """Text that replaces the printed token, with one image token."""
        start, end = self.wrapping
        return f"\n\n{start}{self.image_token}{end}\n\n"

    def pieces(self) -> frozenset[str]:
        """Return the token of an image and its marks."""
        return frozenset({self.image_token, *self.wrapping})
