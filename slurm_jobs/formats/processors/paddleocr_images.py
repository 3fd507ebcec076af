"""Plan of an image for the processor of PaddleOCR-VL."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.formats.processors.image_plans import NativeImages, Size


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddleOcrImages(NativeImages):
    """Rules like Qwen2-VL's, except that a side shorter than a token first gets its length."""

    def _grown(self, size: Size) -> Size:
        width, height = size
        least = self.patch_size * self.merge_size
        if height < least:
            width, height = round(width * least / height), least
        if width < least:
            width, height = least, round(height * least / width)
        return width, height
