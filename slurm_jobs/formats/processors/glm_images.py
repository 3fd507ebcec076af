"""Plan of an image for the processors of GLM-4.1V, GLM-4.6V and GLM-OCR."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.formats.processors.image_plans import NativeImages, Size


@dataclass(frozen=True, kw_only=True, slots=True)
class GlmImages(NativeImages):
    """Rules like Qwen2-VL's, except that a thin image first grows to the width of a token."""

    def _grown(self, size: Size) -> Size:
        least = self.patch_size * self.merge_size
        if min(size) >= least:
            return size
        scale = max(least / side for side in size)
        return int(size[0] * scale), int(size[1] * scale)
