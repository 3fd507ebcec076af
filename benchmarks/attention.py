"""Attention calls and masks in one forward pass, compared with transformers' own.

    python -m benchmarks.attention [--json FILE]

The benchmark counts calls instead of measuring time: models have the depth and windows of the
published ones but no weights, so a CPU counts in seconds what a GPU would launch. Vision towers
process eight images of 48 x 64 patches, or eight of different sizes; language models process eight
packed rows of 4,096 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForImageTextToText, Qwen2_5_VLConfig, Qwen2VLConfig, Qwen3VLConfig

from benchmarks.table import Row, arguments, row, show
from pipeline.models.attention_kernels.packed_rows import Packing, attention_arguments
from pipeline.models.attention_kernels.pictures import attend_pictures_by_segment
from pipeline.models.families import FAMILIES
from pipeline.models.layouts.tower_arguments import tower_arguments

META = torch.device("meta")
SAME = ((1, 48, 64),) * 8
OWN = tuple((1, 2 * height, 64) for height in range(17, 25))
NUM_ROWS, LENGTH = 8, 4096
PEER, WAYS = "transformers", ("dense", "varlen")
_TEXT = {"num_hidden_layers": 36, "hidden_size": 64, "intermediate_size": 64, "vocab_size": 64,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
_TEXT["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
_VISION = {"hidden_size": 64, "num_heads": 4, "out_hidden_size": 64}
CONFIGS = {
    "Qwen2-VL": Qwen2VLConfig(
        vision_config={"depth": 32, "embed_dim": 64, "num_heads": 4, "hidden_size": 64},
        text_config=_TEXT,
    ),
    "Qwen2.5-VL": Qwen2_5_VLConfig(vision_config={"depth": 32, **_VISION}, text_config=_TEXT),
    "Qwen3-VL": Qwen3VLConfig(
        vision_config={"depth": 27, "intermediate_size": 64, **_VISION},
        text_config={**_TEXT, "head_dim": 16},
    ),
}


class Counts(TorchFunctionMode):
    """Counter of attention calls, and of masks that a kernel must convert or that are built."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.converted = 0
        self.kept: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, then call the function."""
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            self.calls += 1
            mask = kwargs.get("attn_mask")
            if mask is not None and mask.dtype == torch.bool:
                self.converted += 1
            elif mask is not None:
                self.kept.add(id(mask))
        return func(*args, **kwargs)

    @property
    def masks(self) -> int:
        """Return the number of half-precision masks, which a pass keeps for the backward pass."""
        return self.converted + len(self.kept)


def make(name: str) -> Any:
    """Build the model without weights."""
    with META:
        return AutoModelForImageTextToText.from_config(CONFIGS[name], dtype=torch.bfloat16).train()


def calls_of_pictures(name: str, grids: Sequence[Any]) -> dict[str, int]:
    """Return the attention calls of one pass of a vision tower, by kind."""
    family = FAMILIES[CONFIGS[name].model_type]
    results = {}
    for way in (PEER, *WAYS):
        hf = make(name)
        tower = hf.model.visual
        if way != PEER:
            attend_pictures_by_segment(tower)
        weight = tower.patch_embed.proj.weight
        num_patches = sum(t * h * w for t, h, w in grids)
        pixels = torch.empty(num_patches, weight[0].numel(), device=META, dtype=weight.dtype)
        vision = {"pixel_values": pixels, "image_grid_thw": tuple(grids)}
        call = tower_arguments(vision, family.follow_from_grids, tower, uses_varlen=way == "varlen")
        if way == PEER:
            del call["segments"]
        operators = CountOperators()
        with Counts() as counts, operators:
            hf.model.get_image_features(**call, return_dict=True)
        results[way] = counts.calls + operators.calls
    return results


class CountOperators(TorchDispatchMode):
    """Counter of calls of the reference, which replaces the kernel on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, then call the operator."""
        self.calls += "reference_attention" in str(func)
        return func(*args, **(kwargs or {}))


def masks_of_rows(name: str) -> dict[str, int]:
    """Return the masks of one pass of a language model over packed rows, by masking method."""
    bounds = torch.arange(0, NUM_ROWS * LENGTH + 1, LENGTH // 4, dtype=torch.int32, device=META)
    packing = Packing(bounds=bounds, lengths=(LENGTH // 4,) * 4 * NUM_ROWS, dtype=torch.bfloat16)
    ids = torch.empty(NUM_ROWS, LENGTH, dtype=torch.int64, device=META)
    places = torch.empty(4, NUM_ROWS, LENGTH, dtype=torch.int64, device=META)
    results = {}
    for way in (PEER, *WAYS):
        hf = make(name)
        text = hf.config.get_text_config()
        if way == PEER:
            # The shape and dtype of transformers' position ids, whose values it reads.
            shape = (NUM_ROWS, 1, LENGTH, LENGTH)
            apart = {"attention_mask": torch.empty(shape, dtype=torch.bool, device=META)}
        else:
            apart = attention_arguments(packing, text, ids, uses_varlen=way == "varlen")
        with Counts() as counts:
            hf.model.language_model(input_ids=ids, position_ids=places, use_cache=False, **apart)
        results[way] = counts.masks
    return results


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    pictures = {"8 pictures of one size": SAME, "8 pictures of sizes of their own": OWN}
    results = {
        (f"{name}, {what}", "attention calls"): calls_of_pictures(name, grids)
        for name in CONFIGS
        for what, grids in pictures.items()
    }
    for name in CONFIGS:
        case = f"{name}, 8 packed rows of 4,096"
        results[case, "masks of half precision"] = masks_of_rows(name)
    rows: list[Row] = [
        row(f"{case}: {way}", unit, counts[way], peer=PEER, peer_value=counts[PEER])
        for (case, unit), counts in results.items()
        for way in WAYS
    ]
    show(rows, options, ["slurm-jobs", "torch", "transformers"])


if __name__ == "__main__":
    main()
