"""Planted leaks between the samples of a microbatch, each in the code of a family's own path."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from pipeline.data import batch
from pipeline.data.batch import TokenRows
from pipeline.models import hugging_face
from pipeline.models.attention_kernels import delta_net, packed_rows
from pipeline.models.layouts import tower_arguments
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.train.trained_model.trained_model import TrainedModel

Plant = Callable[[pytest.MonkeyPatch, TrainedModel], None]


def _replace(
    patch: pytest.MonkeyPatch, place: Any, name: str, make: Callable[..., Callable[..., Any]]
) -> None:
    patch.setattr(place, name, make(getattr(place, name)))


def mask_over_samples(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """The samples of a microbatch are one segment."""
    _replace(
        patch,
        packed_rows,
        "dense_mask",
        lambda right: lambda bounds, *others: right(bounds[[0, -1]], *others),
    )


def sliding_window_over_samples(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """Only the mask of layers with a window does not know the samples."""

    def make(right: Any) -> Any:
        def masked(bounds: torch.Tensor, *shape: Any) -> torch.Tensor:
            _dtype, _num_rows, _length, window, _images = shape
            return right(bounds if window is None else bounds[[0, -1]], *shape)

        return masked

    _replace(patch, packed_rows, "dense_mask", make)


def one_token_too_many(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """A mask in which each sample begins with the last token of the sample before it."""

    def make(right: Any) -> Any:
        def masked(bounds: torch.Tensor, *others: Any) -> torch.Tensor:
            moved = bounds.clone()
            moved[1:-1] -= 1
            return right(moved, *others)

        return masked

    _replace(patch, packed_rows, "dense_mask", make)


def one_token_too_many_in_varlen(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """The same in the bounds of the kernel (`cu_seqlens`)."""

    def make(right: Any) -> Any:
        def attend(*tensors: Any, bounds: torch.Tensor, longest: int, **options: Any) -> Any:
            moved = bounds.clone()
            moved[1:-1] -= 1
            return right(*tensors, bounds=moved, longest=longest + 1, **options)

        return attend

    _replace(patch, packed_rows, "attend_varlen", make)


def no_mask_and_no_positions(patch: pytest.MonkeyPatch, made: TrainedModel) -> None:
    """transformers is called as for rows of one sample."""
    _replace(
        patch,
        made.parallel.bare.language_model,
        "forward",
        lambda right: (
            lambda **call: right(**{**call, "attention_mask": None, "position_ids": None})
        ),
    )


def positions_do_not_restart(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """Positions count through the row."""

    def make(right: Any) -> Any:
        def lay_out(*args: Any, **options: Any) -> Any:
            rows = right(*args, **options)
            running = np.broadcast_to(np.arange(rows.input_ids.shape[1]), rows.input_ids.shape)
            return dataclasses.replace(rows, position_ids=running.copy())

        return lay_out

    _replace(patch, batch, "lay_out_tokens", make)


def times_do_not_restart(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """Of positions in three dimensions, the first counts on from sample to sample."""

    def make(right: Any) -> Any:
        def positions(layout: NativePatches, rows: TokenRows, sizes: Any) -> np.ndarray:
            found = right(layout, rows, sizes)
            starts = np.repeat(rows.segment_bounds[:-1], np.diff(rows.segment_bounds))
            found[-3] += starts.reshape(found.shape[1:])
            return found

        return positions

    _replace(patch, NativePatches, "positions", make)


def bounds_of_the_loader_off_by_one(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """What the loader passes to attention, and to all else."""

    def make(right: Any) -> Any:
        def lay_out(*args: Any, **options: Any) -> Any:
            rows = right(*args, **options)
            moved = rows.segment_bounds.copy()
            if len(moved) > 2:
                moved[1] -= 1
            return dataclasses.replace(rows, segment_bounds=moved)

        return lay_out

    _replace(patch, batch, "lay_out_tokens", make)


def _within_packed_rows(patch: pytest.MonkeyPatch, reset: Callable[[], None]) -> None:
    def make(right: Any) -> Any:
        def mix(*args: Any) -> torch.Tensor:
            reset()
            return right(*args)

        return mix

    _replace(patch, delta_net, "_mix_packed", make)


def state_of_the_sample_before(patch: pytest.MonkeyPatch, made: TrainedModel) -> None:
    """The delta rule goes on from the state in which the sample before it ended."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    for net in filter(delta_net.is_delta_net, made.parallel.bare.modules()):
        net.A_log.data.fill_(-5.0)  # states last, as in trained models

    states: list[torch.Tensor] = []
    _within_packed_rows(patch, states.clear)

    def make(right: Any) -> Any:
        def rule(*args: Any, **options: Any) -> Any:
            options |= {
                "initial_state": states[-1] if states else None,
                "output_final_state": True,
            }
            mixed, state = right(*args, **options)
            states.append(state)
            return mixed, state

        return rule

    _replace(patch, modeling_qwen3_5, "torch_chunk_gated_delta_rule", make)


def convolution_over_samples(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """The convolution reads the last tokens of the sample before it."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    inputs: list[torch.Tensor] = []
    _within_packed_rows(patch, inputs.clear)

    def make(right: Any) -> Any:
        def convolve(hidden: torch.Tensor, weight: torch.Tensor, *others: Any, **options: Any):
            num = weight.shape[-1] - 1
            before = inputs[-1] if inputs else functional.pad(hidden[..., :0], (num, 0))
            joined = torch.cat([before[..., -num:], hidden], dim=-1)
            inputs.append(joined)
            return right(joined, weight, *others, **options)[..., num:]

        return convolve

    _replace(patch, modeling_qwen3_5, "causal_conv1d_fn", make)


def images_see_each_other(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """All patches of a microbatch are one image to the attention of the vision tower."""
    _replace(
        patch,
        tower_arguments,
        "picture_segments",
        lambda right: lambda bounds, move: right(bounds[[0, -1]], move),
    )


def windows_cross_images(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """The windows of a vision tower begin one token late."""

    def make(right: Any) -> Any:
        def windows(*args: Any, **options: Any) -> Any:
            order, bounds = right(*args, **options)
            moved = bounds.clone()
            moved[1:-1] += 4
            return order, moved

        return windows

    _replace(patch, tower_arguments, "get_vision_window_index", make)


def embeddings_of_images_swapped(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """Each token of an image has the features of one a few places later in the microbatch."""
    _replace(
        patch,
        hugging_face,
        "put_features",
        lambda right: (
            lambda embeddings, features, places: right(embeddings, features.roll(4, dims=0), places)
        ),
    )


def added_features_of_the_wrong_image(patch: pytest.MonkeyPatch, _made: TrainedModel) -> None:
    """The features that layers add (Qwen3-VL) are those of other images."""

    def make(right: Any) -> Any:
        def added(output: Any, places: torch.Tensor) -> dict[str, Any]:
            arguments = right(output, places)
            rolled = [each.roll(4, dims=0) for each in arguments["deepstack_visual_embeds"]]
            return {**arguments, "deepstack_visual_embeds": rolled}

        return added

    _replace(patch, hugging_face, "_added_features", make)


def embeddings_of_layers_shifted(patch: pytest.MonkeyPatch, made: TrainedModel) -> None:
    """The embeddings of each layer (Gemma 4) are those of the token before."""
    bare: Any = made.parallel.bare
    right = bare.family.language_inputs
    shifted = dataclasses.replace(
        bare.family, language_inputs=lambda hf, ids: right(hf, ids.roll(1, dims=1))
    )
    patch.setattr(bare, "family", shifted)


def statistics_of_the_row(patch: pytest.MonkeyPatch, made: TrainedModel) -> None:
    """The projected images are centred over all images of the microbatch."""

    def make(right: Any) -> Any:
        def project(vision: Any) -> torch.Tensor:
            features = right(vision)
            return features - features.mean(dim=(0, 1))

        return project

    _replace(patch, made.parallel.bare, "_project", make)


LEAKS: dict[str, tuple[str, Plant]] = {
    "a mask over samples": ("llava_siglip", mask_over_samples),
    "a mask over samples, with experts": ("qwen3_vl_moe", mask_over_samples),
    "no mask and no positions": ("smolvlm", no_mask_and_no_positions),
    "a sliding window over samples": ("gemma3", sliding_window_over_samples),
    "a mask that is off by one": ("internvl", one_token_too_many),
    "cu_seqlens that are off by one": ("qwen2_vl", one_token_too_many_in_varlen),
    "bounds of the loader that are off by one": ("llava", bounds_of_the_loader_off_by_one),
    "positions that do not restart": ("idefics3", positions_do_not_restart),
    "times that do not restart": ("qwen3_vl", times_do_not_restart),
    "a state that is carried on": ("qwen3_5", state_of_the_sample_before),
    "a state that is carried on, with experts": ("qwen3_5_moe", state_of_the_sample_before),
    "a convolution over samples": ("qwen3_5", convolution_over_samples),
    "images that see each other": ("qwen2_vl", images_see_each_other),
    "windows that cross images": ("qwen2_5_vl", windows_cross_images),
    "embeddings of images swapped": ("llava_next", embeddings_of_images_swapped),
    "added features of the wrong image": ("qwen3_vl", added_features_of_the_wrong_image),
    "embeddings of layers shifted": ("gemma4", embeddings_of_layers_shifted),
    "statistics of all images": ("small_vlm", statistics_of_the_row),
}
"""Family and plant by name."""
