"""Images that become one array of one size: SigLIP, CLIP, and LLaVA 1.5 with either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.processors.plan import ImagePlan, Recipe, Size


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedImages:
    """Rules for a single size of all images."""

    height: int
    width: int
    shortest_edge: int | None
    """Size of the shorter side before the middle is cut out; None resizes both sides."""
    image_token: str
    num_image_tokens: int
    """Number of tokens that represent one image."""

    @property
    def wrapping(self) -> None:
        """Return None: no tokens surround an image."""
        return

    def plan(self, size: Size) -> ImagePlan:
        """Plan as transformers' `PilBackend.resize` and `center_crop`; every shape is accepted."""
        return ImagePlan(
            recipes=(self._recipe(size),),
            placeholder=((self.image_token, self.num_image_tokens),),
        )

    def _recipe(self, size: Size) -> Recipe:
        if self.shortest_edge is None:
            return Recipe(resizes=((self.width, self.height),))
        shorter, longer = sorted(size)
        edge, long_edge = self.shortest_edge, int(self.shortest_edge * longer / shorter)
        width, height = (edge, long_edge) if size[0] <= size[1] else (long_edge, edge)
        left, top = (width - self.width) // 2, (height - self.height) // 2
        box = (left, top, left + self.width, top + self.height)
        return Recipe(resizes=((width, height),), box=box)

    def pieces(self) -> frozenset[str]:
        """Return the image token alone."""
        return frozenset({self.image_token})

    def model_inputs(self) -> Mapping[str, Any]:
        """Return fields of `DatasetInfo`."""
        return {
            "image_kind": "fixed",
            "image_height": self.height,
            "image_width": self.width,
            "num_image_tokens": self.num_image_tokens,
            "patch_size": None,
            "merge_size": None,
            "temporal_patch_size": None,
        }
