"""Plan of an image for the processors of GLM-4.1V, GLM-4.6V and GLM-OCR."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.formats.processors.image_plans import (
    NativeImages,
    Size,
    check_sides,
    smart_resize,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GlmImages(NativeImages):
    """Rules like Qwen2-VL's, except that a narrow image first grows to the width of a token."""

    def _resized(self, size: Size) -> Size:
        check_sides(size)
        factor = self.patch_size * self.merge_size
        if min(size) < factor:
            scale = max(factor / side for side in size)
            size = (int(size[0] * scale), int(size[1] * scale))
        return smart_resize(
            size, factor=factor, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
