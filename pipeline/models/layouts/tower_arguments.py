"""Inputs of vision towers that follow from the sizes of images, computed on the host.

Given sizes on the device, transformers would compute them there and read them back: the lengths
of images in each layer, three times, and as often again where layers are recomputed. At each
read the host waits until the device has done all queued work. The towers accept all of it as
arguments instead (`transformers.vision_utils`), by the names used here: lengths, which are only
read, stay on the host, and tensors for computing are copied to the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from pipeline.models.attention_kernels.pictures import picture_segments
from pipeline.models.layouts.image_layout import VisionInputs

_LONGEST = {"cu_seqlens": "max_seqlen", "cu_window_seqlens": "max_window_seqlen"}
"""transformers' name of the length of the longest segment, by the name of its bounds."""


FollowFromGrids = Callable[[torch.Tensor, Any], Mapping[str, torch.Tensor]]
"""Maps sizes on the host and a vision tower to its arguments, on the host. Sizes are int64
[num_images, 3], in patches, or [num_images, 2], in pixels: one of `_SIZES`."""
_SIZES = ("image_grid_thw", "image_sizes")
"""Names of the sizes of images among the inputs of a vision tower."""


def lengths_and_places(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return the bounds of images, and row and column of each patch, for Qwen2-VL."""
    return _bounds_and_places(grids, tower.spatial_merge_size)


def _bounds_and_places(grids: torch.Tensor, merge_size: int) -> dict[str, torch.Tensor]:
    """Return them in the order of patches; with a merge size of 1 these are row by row."""
    return {
        "cu_seqlens": get_vision_cu_seqlens(grids),
        "position_ids": get_vision_position_ids(grids, merge_size),
    }


def with_windows(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return also which patches see each other in most layers, for Qwen2.5-VL."""
    order, bounds = get_vision_window_index(
        grids,
        spatial_merge_size=tower.spatial_merge_size,
        window_size=tower.window_size,
        patch_size=tower.patch_size,
    )
    windows = {"window_index": order, "cu_window_seqlens": bounds}
    return lengths_and_places(grids, tower) | windows


def with_learned_places(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return also the weights of each patch in the learned positions, for Qwen3-VL and Qwen3.5."""
    return lengths_and_places(grids, tower) | _learned(grids, tower, tower.spatial_merge_size)


def raster_places(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return the same for patches row by row, for PaddleOCR-VL."""
    shares = _learned(grids, tower.vision_model.embeddings, merge_size=1)
    return _bounds_and_places(grids, merge_size=1) | shares


def _learned(grids: torch.Tensor, positions: Any, merge_size: int) -> dict[str, torch.Tensor]:
    """Return learned positions around each patch and their shares, as `positions` says."""
    indices, weights = get_vision_interpolation_indices_and_weights(
        grids,
        num_grid_per_side=positions.num_grid_per_side,
        mode=positions.interpolation_mode,
        align_corners=positions.interpolation_align_corners,
        spatial_merge_size=merge_size,
    )
    return {"interp_indices": indices, "interp_weights": weights}


def with_bicubic_places(grids: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return the same for GLM-4V, whose embeddings name less of it."""
    embeddings = tower.embeddings
    indices, weights = get_vision_interpolation_indices_and_weights(
        grids,
        num_grid_per_side=embeddings.image_size // embeddings.patch_size,
        mode=embeddings.interpolated_method,
        spatial_merge_size=tower.spatial_merge_size,
    )
    shares = {"interp_indices": indices, "interp_weights": weights}
    return lengths_and_places(grids, tower) | shares


def places_in_pixels(sizes: torch.Tensor, tower: Any) -> dict[str, torch.Tensor]:
    """Return the bounds and places of patches for Pixtral's tower, from heights and widths."""
    ones = torch.ones(len(sizes), 1, dtype=sizes.dtype)
    grids = torch.cat([ones, sizes // tower.patch_size], dim=1)
    return _bounds_and_places(grids, merge_size=1)


def plain_arguments(vision: VisionInputs, device: torch.device) -> dict[str, torch.Tensor]:
    """Return the arguments as tensors, as in transformers; SYNC: to a GPU sizes are copied."""
    return {
        name: value if isinstance(value, torch.Tensor) else torch.tensor(value, device=device)
        for name, value in vision.items()
    }


def tower_arguments(
    vision: VisionInputs, follow: FollowFromGrids | None, tower: Any, *, uses_varlen: bool = False
) -> dict[str, Any]:
    """Return the arguments of `get_image_features`: sizes on the host, and derived values; no SYNC.

    `uses_varlen`: True if the attention kernel takes the bounds of images.
    """
    arguments = plain_arguments(vision, torch.device("cpu"))
    if follow is None:
        return arguments
    move = functools.partial(_queue_copy, device=arguments["pixel_values"].device)
    sizes = next(arguments[name] for name in _SIZES if name in arguments)
    followed = follow(sizes, tower)
    borders = {name: value for name, value in followed.items() if name.startswith("cu_")}
    copied = {name: move(value) for name, value in followed.items() if name not in borders}
    if uses_varlen:
        moved = {name: move(bounds.to(torch.int32)) for name, bounds in borders.items()}
        longest = {_LONGEST[name]: int(bounds.diff().max()) for name, bounds in borders.items()}
        return {**arguments, **copied, **moved, **longest, "uses_varlen": True}
    # Lengths are only read, by `tolist`.
    segments = {len(bounds): picture_segments(bounds, move) for bounds in borders.values()}
    return {**arguments, **copied, **borders, "segments": segments}


def _queue_copy(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy from pinned memory, because from other memory the host may wait for the device."""
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)
