"""What a model's operations follow from, read off its modules; see `pipeline.timing.flops`.

Ask before a strategy spreads the model, and again when other parts of it are trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from pipeline.models.interface import VisionLanguageModel
from pipeline.timing.flops import ModelWork, PartWork

_BASE = ".base_layer"
"""How adapters call the layer that they are added to."""
_ORDER = ("vision", "projector", "language", "head")
"""In which a gradient cannot pass from an earlier part to a later one."""


def read_work(model: VisionLanguageModel) -> ModelWork:
    """The matrices and attention of each part, and which gradients they take part in.

    Parameters on which nothing depends are left out, and so are heads that tell classes. A gradient
    is taken to pass through all of a part if anything in the part, or in one before it, is trained:
    of adapters in the first layer that is a little too much.
    """
    prefixes = {"heads": ("heads.",), **model.part_prefixes()}
    learned = (name for name, value in model.named_parameters() if value.requires_grad)
    trained = {_part_by_name(name, prefixes) for name in learned}
    num_weights: dict[str, Counter[int]] = {part: Counter() for part in _ORDER}
    widths: Counter[tuple[str, bool]] = Counter()
    full = _full_attention_layers(model)
    for name, module in _matrices(model):
        part = "head" if module is model.output_head() else _part_by_name(name, prefixes)
        if part == "heads":
            continue
        products = 1 + module.weight.requires_grad + _needs_input_gradient(part, module, trained)
        num_weights[part][products] += _num_weights(module)
        is_window = part == "vision" and full is not None and _layer_number(name) not in full
        widths[part, is_window] += _query_width(name, module)
    works = {
        part: PartWork(
            num_weights=dict(num_weights[part]),
            attention_width=widths[part, False],
            window_width=widths[part, True],
            passes_gradient=_is_reached(part, trained),
        )
        for part in _ORDER
    }
    return ModelWork(**works, window_patches=_window_patches(model))


def _matrices(model: VisionLanguageModel) -> Iterator[tuple[str, Any]]:
    """Modules that multiply by a matrix, by name; 4-bit ones are linear layers, too."""
    unused = model.unused_parameters()
    for name, module in model.named_modules():
        is_matrix = isinstance(module, nn.Linear | nn.Conv2d | nn.Conv3d)
        if is_matrix and f"{name}.weight" not in unused:
            yield name, module


def _part_by_name(name: str, prefixes: Mapping[str, tuple[str, ...]]) -> str:
    """Adapters belong to the part that they are added to."""
    return next((part for part, starts in prefixes.items() if name.startswith(starts)), "language")


def _num_weights(module: Any) -> int:
    """Not from the weight itself, which may be packed to 4 bits or sharded."""
    if isinstance(module, nn.Linear):
        return module.in_features * module.out_features
    size = 1
    for side in module.kernel_size:
        size *= side
    return int(module.in_channels // module.groups * module.out_channels * size)


def _needs_input_gradient(part: str, module: nn.Module, trained: set[str]) -> bool:
    """Whether the backward computes the gradient of what goes in; pixels need none."""
    is_first = part == "vision" and not isinstance(module, nn.Linear)
    return not is_first and _is_reached(part, trained)


def _is_reached(part: str, trained: set[str]) -> bool:
    """Whether something in it or before it is trained."""
    return any(before in trained for before in _ORDER[: _ORDER.index(part) + 1])


def _query_width(name: str, module: Any) -> int:
    """Heads times size of a head, of the matrix that makes queries; 0 for any other."""
    leaf = name.removesuffix(_BASE).rpartition(".")[2]
    if leaf == "q_proj":
        return int(module.out_features)
    return int(module.out_features) // 3 if leaf == "qkv" else 0  # queries, keys and values in one


def _layer_number(name: str) -> int:
    return next((int(word) for word in name.split(".") if word.isdecimal()), 0)


def _vision_config(model: VisionLanguageModel) -> Any:
    return getattr(getattr(getattr(model, "hf", None), "config", None), "vision_config", None)


def _full_attention_layers(model: VisionLanguageModel) -> frozenset[int] | None:
    """Of a vision tower with windows (Qwen2.5-VL's), the layers without; None of any other."""
    found = getattr(_vision_config(model), "fullatt_block_indexes", None)
    return None if found is None else frozenset(found)


def _window_patches(model: VisionLanguageModel) -> int | None:
    if _full_attention_layers(model) is None:
        return None
    return int(_vision_config(model).window_size) // model.patch_size
