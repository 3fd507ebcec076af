"""Sizes that determine a model's operations, read from its modules; see `pipeline.timing.flops`.

Read them before sharding, and again when other parts are trained.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from pipeline.models.attention_kernels.delta_net import is_delta_net
from pipeline.models.computation.experts import (
    EXPERT_PARAMETERS,
    is_experts,
    is_router,
    num_used_weights,
)
from pipeline.models.finetuning.parameter_names import without_adapters
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.flops import ModelWork, PartWork

_BASE = ".base_layer"
"""Suffix of adapted layers' names in peft."""
_BARE_MATRICES = (".mm_input_projection_weight",)
"""Ends of the names of matrices that are no module of their own: Gemma 3's projector."""
_ORDER = ("vision", "projector", "language", "head", "heads")
"""Order in which a gradient cannot pass from an earlier part to a later one."""
_MATRIX_MODULES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_Place = tuple[int, int]
"""In a pass: index of the part, and of the layer in it; -1 is before all layers."""


def read_work(model: VisionLanguageModel) -> ModelWork:
    """Return the matrices and attention of each part, and the gradients they take part in.

    Parameters that affect no output are left out, and so are classifier heads. A gradient is
    assumed to pass through a whole layer if anything in it, or before it, is trained. That
    slightly overestimates where only adapters are in the first such layer.
    """
    parameters = dict(
        model.named_parameters(remove_duplicate=False)
    )  # a tied head has its own name
    learned = {name: value.requires_grad for name, value in parameters.items()}
    trained = (place for name, place in _places(model, learned) if learned[name])
    first = min(trained, default=(len(_ORDER), 0))
    hf_config = getattr(getattr(model, "hf", None), "config", None)
    vision_config: Any = getattr(hf_config, "vision_config", None)
    # A vision tower's layers without windows (Qwen2.5-VL's); None for any other model.
    full = getattr(vision_config, "fullatt_block_indexes", None)
    sliding = _sliding_layers(model.text_config)
    num_weights: dict[str, Counter[int]] = {part: Counter() for part in _ORDER}
    widths: dict[tuple[str, bool], Counter[int]] = {
        (part, is_window): Counter() for part in _ORDER for is_window in (False, True)
    }
    state_sizes: dict[str, Counter[int]] = {part: Counter() for part in _ORDER}
    # By a name that has a place: no adapter wraps the convolution.
    delta_nets: dict[str, Any] = {
        f"{name}.conv1d.weight": module
        for name, module in model.named_modules()
        if is_delta_net(module)
    }
    matrices = _matrices(model)
    for name, place in _places(model, matrices):
        part, module = _ORDER[place[0]], matrices[name]
        # The output head's input needs no gradient if only the head is trained.
        passes = first < place or (first == place and part != "head")
        is_pixels = part == "vision" and not isinstance(module, nn.Linear)
        products = 1 + learned[name] + (passes and not is_pixels)
        num_weights[part][products] += _num_weights(model, name, module)
        is_window = part == "vision" and full is not None and place[1] not in full
        is_window |= part == "language" and place[1] in sliding
        num_products = 3 if passes else 1
        widths[part, is_window][num_products] += _query_width(part, name, module)
        if name in delta_nets:
            state_sizes[part][num_products] += _state_size(delta_nets[name])
    bare = {name: learns for name, learns in learned.items() if name.endswith(_BARE_MATRICES)}
    for name, place in _places(model, bare):
        products = 1 + bare[name] + (first <= place)
        num_weights[_ORDER[place[0]]][products] += parameters[name].numel()
    works = {
        part: PartWork(
            num_weights=dict(num_weights[part]),
            attention_width=dict(+widths[part, False]),
            window_width=dict(+widths[part, True]),
            state_size=dict(state_sizes[part]),
        )
        for part in _ORDER
        if part != "heads"
    }
    window_patches = None
    if full is not None:
        window_patches = int(vision_config.window_size) // model.patch_size
    window_tokens = int(model.text_config.sliding_window) if sliding else None
    return ModelWork(**works, window_patches=window_patches, window_tokens=window_tokens)


def _sliding_layers(text_config: Any) -> frozenset[int]:
    """Return the numbers of the language model's layers in which a token sees only a window."""
    kinds = getattr(text_config, "layer_types", None) or ()
    return frozenset(n for n, kind in enumerate(kinds) if kind == "sliding_attention")


def _matrices(model: VisionLanguageModel) -> dict[str, Any]:
    """Return the modules of the matrices that affect an output, by the parameters' names."""
    unused = model.unused_parameters()
    matrices: dict[str, Any] = {}
    for name, module in model.named_modules():
        weight = f"{name}.weight"
        has_matrix = isinstance(module, _MATRIX_MODULES) or is_router(module)  # in 4 bits, too
        if has_matrix and without_adapters(weight) not in unused:
            matrices[weight] = module
        if is_experts(module):
            for parameter in EXPERT_PARAMETERS:
                matrices[f"{name}.{parameter}"] = module
    return matrices


def _places(model: VisionLanguageModel, names: Iterable[str]) -> Iterator[tuple[str, _Place]]:
    """Yield names of parameters, in order of definition, with their places.

    Modules of a tower after its layers are defined after them, too.
    """
    head, layers = model.output_head(), [layer for tower in model.towers() for layer in tower]
    (head_name,) = (name for name, module in model.named_modules() if module is head)
    prefixes: list[tuple[str, tuple[str, ...]]]
    prefixes = [
        ("heads", ("heads.",)),
        ("head", (f"{head_name}.",)),
        *model.part_prefixes().items(),
    ]
    ids = {id(layer) for layer in layers}
    lists = {n.rpartition(".")[0] + "." for n, m in model.named_modules() if id(m) in ids}
    behind: Counter[int] = Counter()
    for name in names:
        fits = (part for part, starts in prefixes if name.startswith(starts))
        part = _ORDER.index(next(fits, "language"))
        start = next((start for start in lists if name.startswith(start)), None)
        if start is None or _ORDER[part] not in ("vision", "language"):
            yield name, (part, behind[part] - 1)
            continue
        layer = int(name.removeprefix(start).partition(".")[0])
        behind[part] = layer + 2
        yield name, (part, layer)


def _num_weights(model: VisionLanguageModel, name: str, module: Any) -> int:
    """Return the weights that a token uses, by sizes: a weight may be packed or sharded."""
    if isinstance(module, nn.Linear):
        return module.in_features * module.out_features
    if is_experts(module):
        num_experts_per_token: int = model.text_config.num_experts_per_tok
        return num_used_weights(module, name.rpartition(".")[2], num_experts_per_token)
    if is_router(module):
        return int(module.weight.numel())
    size = math.prod(module.kernel_size)
    return int(module.in_channels // module.groups * module.out_channels * size)


def _query_width(part: str, name: str, module: Any) -> int:
    """Return heads times head size, of one matrix of each attention; 0 for any other matrix."""
    path = name.removesuffix(".weight").removesuffix(_BASE)
    leaf = path.removesuffix(".linear").rpartition(".")[2]  # Gemma 4 clips what goes in
    if leaf == "o_proj" and part == "language":  # its input: Qwen3.5's q_proj makes gates, too
        return int(module.in_features)
    if leaf == "q_proj" and part == "vision":  # some of these towers call the other one `out_proj`
        return int(module.out_features)
    return int(module.out_features) // 3 if leaf == "qkv" else 0  # queries, keys and values in one


def _state_size(delta_net: Any) -> int:
    return int(delta_net.num_v_heads * delta_net.head_k_dim * delta_net.head_v_dim)
