"""Plan of an image for the processor of PaddleOCR-VL."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.formats.processors.image_plans import (
    NativeImages,
    Size,
    check_sides,
    smart_resize,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddleOcrImages(NativeImages):
    """Rules like Qwen2-VL's, except that a side shorter than a token first gets its length."""

    def _resized(self, size: Size) -> Size:
        check_sides(size)
        width, height = size
        factor = self.patch_size * self.merge_size
        if height < factor:
            width, height = round(width * factor / height), factor
        if width < factor:
            width, height = factor, round(height * factor / width)
        return smart_resize(
            (width, height), factor=factor, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
