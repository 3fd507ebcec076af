"""Computation of a model: attention, compiled and recomputed layers, parts and their work."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils._triton import has_triton
from torch.utils.checkpoint import checkpoint

from pipeline.models.segments import computing_dtype
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.flops import ModelWork, PartWork
from slurm_jobs.shared.configs.train import ALL, PARTS, Part
from slurm_jobs.shared.configs.training_parts import CompileConfig
from slurm_jobs.shared.errors import StageConfigError

# Differences between the supported versions of torch (2.11 to 2.14) and transformers.
#
# Each function tests for the feature, not for the version, where possible. The rest of `pipeline`
# is written for the newest version and calls these. To add a version, run the tests of
# `tests/pipeline/models` and `tests/pipeline/train` in an environment that has it:
# `tests/end_to_end/test_oldest_torch.py` does so with the oldest torch.


def torch_version() -> tuple[int, int]:
    """Return the major and the minor number."""
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)


def can_shard_whole_numbers() -> bool:
    """Check whether `fully_shard` accepts frozen parameters of an integer dtype (packed weights).

    torch 2.11 makes a parameter of the shard before it sets `requires_grad`: "only Tensors of
    floating point dtype can require gradients".
    """
    return torch_version() >= (2, 12)


def param_groups_of(unit: FSDPModule) -> list[Any]:
    """Return the parameter groups of a unit of `fully_shard`; torch 2.11 has at most one."""
    state = unit._get_fsdp_state()  # noqa: SLF001 - no public way
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        group = state._fsdp_param_group  # noqa: SLF001 - no public way
        return [] if group is None else [group]
    return list(groups)


def replicate(module: nn.Module) -> DistributedDataParallel:
    """Wrap a module whose buffers are constants: they are not broadcast before a forward pass.

    From torch 2.13 on `broadcast_buffers` is deprecated.
    """
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    # Without views gradients would be in memory twice.
    return DistributedDataParallel(module, gradient_as_bucket_view=True, **{name: False})


def compile_whole(
    function: Callable[..., Any], *, backend: str, max_variants: int
) -> Callable[..., Any]:
    """Compile a function as one graph with symbolic shapes, at most `max_variants` times.

    torch 2.11 has one limit for all functions of the process.
    """
    options: dict[str, Any] = {"backend": backend, "dynamic": True, "fullgraph": True}
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        options["recompile_limit"] = max_variants
    else:
        torch._dynamo.config.recompile_limit = max_variants  # noqa: SLF001 - no public way
    compiled: Callable[..., Any] = torch.compile(function, **options)
    return compiled


# Zero padding for matrix products whose width is not a multiple of 8.
#
# For rows of bf16 that do not start at a multiple of 16 bytes cuBLAS uses kernels that are
# several times slower
# (docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication). The vision
# tower of Qwen2.5-VL has such layers: they are 3,420 wide. Zeros change no result: the activation
# of 0 times 0 is 0.


_MULTIPLE = 8
"""16 bytes hold 8 numbers of 2 bytes."""
_NUM_BYTES = 2
_PARTS = ("gate_proj", "up_proj", "down_proj")


def align_products(tower: nn.Module) -> None:
    """Pad gated layers whose width is not a multiple of 8 with zeros, on a GPU in bf16 or fp16.

    Parameters do not change. Layers with adapters or in 4 bits compute as before. The padded
    weights are kept for the backward pass. The modules can be copied, but not pickled.
    """
    for module in tower.modules():
        parts = [getattr(module, name, None) for name in _PARTS]
        if all(type(part) is nn.Linear for part in parts) and parts[0].out_features % _MULTIPLE:
            # One class for all layers: each separate function would be compiled again.
            module.__class__ = _aligned(type(module))


@functools.cache
def _aligned(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass that pads with zeros, under the same name."""

    def forward(self: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if _gains(self, hidden):
            return gated_aligned(self, hidden)
        output: torch.Tensor = kind.forward(self, hidden)
        return output

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _gains(module: nn.Module, hidden: torch.Tensor) -> bool:
    is_short = computing_dtype(hidden).itemsize == _NUM_BYTES
    is_plain = all(type(getattr(module, name)) is nn.Linear for name in _PARTS)
    return hidden.is_cuda and is_short and is_plain


def gated_aligned(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Compute `down(act(gate(x)) * up(x))` of [..., size] with a width that is a multiple of 8."""
    missing = -module.gate_proj.out_features % _MULTIPLE
    gate, up = (
        functional.linear(
            hidden,
            functional.pad(part.weight, (0, 0, 0, missing)),
            None if part.bias is None else functional.pad(part.bias, (0, missing)),
        )
        for part in (module.gate_proj, module.up_proj)
    )
    down = module.down_proj
    weight = functional.pad(down.weight, (0, missing))
    return functional.linear(module.act_fn(gate) * up, weight, down.bias)


# Attention sizes of a model, from which PyTorch selects the kernel.


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSizes:
    """Sizes of one layer of a tower."""

    num_heads: int
    num_kv_heads: int
    """Heads of keys and values; if fewer than `num_heads`, several heads share one."""
    head_dim: int


def attention_sizes(model: VisionLanguageModel) -> tuple[AttentionSizes, AttentionSizes]:
    """Return the sizes of the vision tower and the language model; with weights or on "meta"."""
    sizes = []
    for tower in model.towers():
        # Attribute names that all of transformers' attention modules have.
        attention: Any = next(m for m in tower[0].modules() if hasattr(m, "head_dim"))
        num_heads = getattr(attention, "num_heads", None)
        if num_heads is None:
            num_heads = attention.config.num_attention_heads
        num_kv_heads = num_heads // getattr(attention, "num_key_value_groups", 1)
        sizes.append(
            AttentionSizes(
                num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=attention.head_dim
            )
        )
    vision, language = sizes
    return vision, language


# `torch.compile` of the layers of the towers, one by one (regional compilation).
#
# All layers of a kind share the compilation of the first. Only their `forward` is compiled. So
# parameter names do not change, and hooks, such as those by which `fully_shard` gathers a layer,
# stay outside and cause no graph breaks.


_MARK = "is_compiled"
"""Attribute of a `forward`; `functools.wraps` copies it to wrappers."""
USUAL_VARIANTS = 8
"""Compilations that two kinds of layers may need in one phase: with and without a gradient of
the input, for one row and for several. torch's own limit, for all phases, is the same."""
MAX_VARIANTS = 64
"""More fail the attempt, because compilation would never end; a warning came long before."""
_REMEDY = "leave `compile` out"


def compile_layers(model: VisionLanguageModel, config: CompileConfig, device: torch.device) -> None:
    """Compile all layers of the towers at their first call in training.

    In eval mode, and without gradients, a layer is not compiled, because generation has new
    shapes at each token. Lengths of rows are symbolic from the first compilation on, so a new
    length causes no compilation. A layer is compiled as a whole or not at all.

    Args:
        model: Before sharding, and after `recompute_layers`; may be on "meta".
        config: Backend and towers.
        device: Device of the training.

    Raises:
        StageConfigError: compiling is impossible here, or for this tower; or, at a call, a
            layer cannot be compiled.
    """
    check_can_compile(config, device)
    check_towers(model, config)
    # This would split the graph at the ends of gradient buckets, to overlap their reduction with
    # the backward pass; the layers are small enough already.
    torch._dynamo.config.optimize_ddp = False  # noqa: SLF001 - no public way
    for layer in chosen_layers(model, config):
        _compile(layer, config)


def chosen_layers(model: VisionLanguageModel, config: CompileConfig) -> list[nn.Module]:
    """Return the layers of the towers that the config names."""
    by_name = dict(zip(("vision", "language"), model.towers(), strict=True))
    return [layer for name in config.towers for layer in by_name[name]]


def check_can_compile(config: CompileConfig, device: torch.device) -> None:
    """Check that the environment allows compiling.

    Raises:
        StageConfigError: it is switched off there, or Triton is missing.
    """
    if torch._dynamo.config.disable:  # noqa: SLF001 - no public way
        message = (
            "compile is given, and TORCHDYNAMO_DISABLE or TORCH_COMPILE_DISABLE in the environment "
            f"switches it off: unset it, or {_REMEDY}"
        )
        raise StageConfigError(message)
    if config.backend == "inductor" and device.type == "cuda" and not has_triton():
        message = (
            f"compile.backend is inductor, but Triton for {device} is missing: install it (the "
            f"CUDA builds of torch include it), or {_REMEDY}"
        )
        raise StageConfigError(message)


def check_towers(model: VisionLanguageModel, config: CompileConfig) -> None:
    """Check that layers of the towers in the config can be compiled, as far as is known.

    Raises:
        StageConfigError: those of the vision tower cannot.
    """
    if "vision" in config.towers and model.why_vision_not_compiled:
        message = (
            f"compile.towers is [{', '.join(config.towers)}], but this model's vision tower "
            f"cannot be compiled: {model.why_vision_not_compiled}; leave `vision` out of "
            "compile.towers"
        )
        raise StageConfigError(message)


def describe_compiling(model: VisionLanguageModel, config: CompileConfig) -> str:
    """Describe which layers are compiled, and why others are not, for the log."""
    by_name = dict(zip(("vision", "language"), model.towers(), strict=True))
    counts = []
    for name in config.towers:
        number = len(by_name[name])
        tower = {"vision": "vision tower", "language": "language model"}[name]
        counts.append(f"{number} layer{'' if number == 1 else 's'} of the {tower}")
    message = f"{config.backend} compiles {' and '.join(counts)} when first called"
    if "vision" in config.towers:
        return message
    why = model.why_vision_not_compiled or "compile.towers does not name it"
    return f"{message}; the vision tower is not compiled: {why}"


def _compile(layer: Any, config: CompileConfig) -> None:
    forward = layer.forward
    assert not hasattr(forward, _MARK)
    fast = compile_whole(forward, backend=config.backend, max_variants=MAX_VARIANTS)

    @functools.wraps(forward)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        try:
            return fast(*args, **kwargs)
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            message = (
                f"compile: layers {type(layer).__name__} cannot be compiled; leave their tower out "
                f"of compile.towers, or {_REMEDY}: {error}"
            )
            raise StageConfigError(message) from error

    setattr(compiled, _MARK, True)
    layer.forward = compiled


def count_compiled(model: VisionLanguageModel) -> int:
    """Return how many layers of the towers are compiled."""
    return sum(hasattr(layer.forward, _MARK) for layer in chain.from_iterable(model.towers()))


def near_patterns(pattern: str, words: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return at most three alternatives to a pattern that matches nothing, the nearest first.

    Args:
        pattern: Pattern with `*`, `?` and `[..]` that matches none of `names`.
        words: Keywords that are allowed instead of a pattern.
        names: Dotted names. If the pattern begins with `*.`, the ends of names are compared,
            with as many words as the pattern has after its last `*`.
    """
    candidates = {*words, *names}
    head, _, tail = pattern.rpartition("*")
    if pattern.startswith("*.") and tail.startswith("."):
        num_words = tail.count(".")
        ends = (name.split(".")[-num_words:] for name in names)
        candidates = {*words, *(f"{head}*.{'.'.join(end)}" for end in ends)}
    return difflib.get_close_matches(pattern, sorted(candidates), n=3, cutoff=0.4)


# Linear layers by name: those to adapt, and those to quantise.
#
# Full names are used. The last word of a name alone (`q_proj`), which is how they are often
# given, would silently include the vision tower in most families.


_LANGUAGE = "language"


def find_targets(
    model: VisionLanguageModel,
    patterns: tuple[str, ...],
    key: str = "adapters.targets",
    *,
    only_used: bool = True,
) -> list[str]:
    """Return the full names, within `model.root()`, of the linear layers that patterns match.

    Args:
        model: Before adapters are added.
        patterns: Names with `*`, `?` and `[..]`, or `language` for all within the layers of the
            language model.
        key: The config key of the patterns, for messages.
        only_used: Leave out layers that affect no output: they cannot learn.

    Raises:
        StageConfigError: a pattern matches none.
    """
    root = model.root()
    linear = {name for name, module in root.named_modules() if isinstance(module, nn.Linear)}
    unused: set[str] = set()
    if only_used:
        prefix = root_prefix(model)
        names = (name.removeprefix(prefix) for name in model.unused_parameters())
        unused = {name.removesuffix(".weight") for name in names if name.endswith(".weight")}
    linear -= unused
    layers = {id(layer) for layer in model.towers()[-1]}
    starts = tuple(f"{name}." for name, module in root.named_modules() if id(module) in layers)
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == _LANGUAGE:
            matches = {name for name in linear if name.startswith(starts)}
        else:
            matches = set(fnmatch.filter(linear, pattern))
        if not matches:
            of_all = " that affects an output" if unused else ""
            near = near_patterns(pattern, [_LANGUAGE], linear) or sorted(linear)[:3]
            message = (
                f"{key}: {pattern!r} matches no linear layer{of_all}; set `language`, or a "
                f"pattern of full names, such as {', '.join(near)}"
            )
            raise StageConfigError(message)
        chosen |= matches
    return sorted(chosen)


def root_prefix(model: VisionLanguageModel) -> str:
    """Return the prefix of the names in `model.root()` within the model."""
    root = model.root()
    (name,) = (name for name, module in model.named_modules() if module is root)
    return f"{name}." if name else ""


def refuse_tied(model: VisionLanguageModel, names: Collection[str], key: str) -> None:
    """Refuse layers with tied weights, which cannot be changed separately.

    An export has such a weight once, under the other name: a change of it would be lost.

    Args:
        model: Before adapters are added.
        names: Names of the linear layers, within `model.root()`.
        key: The config key of the patterns, for messages.

    Raises:
        StageConfigError: one of the layers has such a weight.
    """
    prefix = root_prefix(model)
    for name, of in model.tied_weights().items():
        layer = name.removeprefix(prefix).removesuffix(".weight")
        if layer in names:
            message = (
                f"{key} matches {layer}, whose weight is tied to {of.removeprefix(prefix)} "
                f"(tie_word_embeddings) and cannot be exported separately; set `{_LANGUAGE}`, or "
                f"patterns that leave {layer} out"
            )
            raise StageConfigError(message)


# Selection of trained parameters: parts of a model by name, or patterns of parameter names.
#
# A parameter belongs to one part. Names are those of the model's own files, so patterns can be
# copied from the model's documentation.


_ADAPTER_MARK = ".lora_"


def visible_name(name: str) -> str:
    """Remove the additions of wrappers, ours and peft's, from a parameter's name."""
    return without_adapters(name).removeprefix("hf.")


def without_adapters(name: str) -> str:
    """Return the name that a parameter, or a buffer, has in the model without adapters."""
    return name.replace(".base_layer.", ".")


def is_adapter(name: str) -> bool:
    """Check whether a parameter belongs to adapters."""
    return _ADAPTER_MARK in name


def parts_of(model: VisionLanguageModel) -> dict[str, Part]:
    """Return the part of each parameter, by the parameter's name in the model."""
    prefixes = {"heads": ("heads.",), **model.part_prefixes()}
    parts: dict[str, Part] = {}
    for name, _ in model.named_parameters():
        fits = (part for part, starts in prefixes.items() if name.startswith(starts))
        parts[name] = "adapters" if is_adapter(name) else next(fits, "language")
    return parts


def choose(parts: Mapping[str, Part], patterns: Sequence[str], where: str) -> frozenset[str]:
    """Return the names of the parameters that the patterns match.

    Args:
        parts: From `parts_of`.
        patterns: Names of parts, `all` (all parts but the adapters), or patterns of parameter
            names with `*`, `?` and `[..]`.
        where: The config key of the patterns, for messages.

    Raises:
        StageConfigError: a pattern matches none.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == ALL:
            matches = {name for name, part in parts.items() if part != "adapters"}
        elif pattern in PARTS:
            matches = {name for name, part in parts.items() if part == pattern}
        else:
            matches = {name for name in parts if fnmatch.fnmatchcase(visible_name(name), pattern)}
        if not matches:
            raise StageConfigError(_matches_nothing(parts, pattern, where))
        chosen |= matches
    return frozenset(chosen)


def _matches_nothing(parts: Mapping[str, Part], pattern: str, where: str) -> str:
    if pattern == "adapters":
        return f"{where}: the model has no adapters; set `adapters:`, or leave `adapters` out here"
    if pattern == "heads":
        return (
            f"{where}: the model has no heads; set `levels` with a `head: classes`, or leave "
            "`heads` out here"
        )
    if pattern in {*PARTS, ALL}:
        return f"{where}: the model has no parameter of the part {pattern!r}; leave it out here"
    names = sorted({visible_name(name) for name in parts})
    near = near_patterns(pattern, [*PARTS, ALL], names)
    return (
        f"{where}: {pattern!r} is not a part ({', '.join(PARTS)}, {ALL}) and matches no "
        f"parameter; similar: {', '.join(near or names[:3])}"
    )


def set_trainable(model: VisionLanguageModel, chosen: frozenset[str]) -> None:
    """Enable gradients of the chosen parameters only.

    Parameters that affect no output do not change: waiting for their gradient would end
    training. May be called again when the model is sharded, because FSDP2 reads it at every
    forward pass.
    """
    unused = model.unused_parameters()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen and name not in unused)


# Activation checkpointing (arXiv:1604.06174): layers are recomputed in the backward pass.
#
# Only a layer's inputs are kept for its backward pass, not its intermediate results. Only its
# `forward` is wrapped, by torch's non-reentrant `checkpoint`. No module is inserted, so the names
# of parameters do not change, by which checkpoints, adapters and exports are keyed. Hooks, such
# as those by which `fully_shard` gathers a layer, stay outside and do not run again. Layers of
# transformers support it (`GradientCheckpointingLayer`), but not in every family.


_RECOMPUTED_MARK = "is_recomputed"
"""Attribute of a `forward`; `functools.wraps` copies it to wrappers."""


def recompute_layers(model: VisionLanguageModel) -> None:
    """Make all layers of the towers recompute their intermediate results in the backward pass.

    In eval mode, and without gradients, a layer is called unchanged. The state of random number
    generators is restored for the second run, so that dropout is the same. Where a layer has no
    dropout, they are not saved, which saves the host two copies of their state per layer.
    Losses and gradients are bit-equal.

    Args:
        model: With its adapters, before sharding; may be on "meta".
    """
    for layer in chain.from_iterable(model.towers()):
        _recompute(layer)


def may_draw(layer: nn.Module) -> bool:
    """Check whether a layer may draw random numbers in training.

    It may if any of its modules, or a config that the module keeps, has a number above 0 whose
    name indicates dropout, of attention weights or paths, too.
    """
    for module in layer.modules():
        config = getattr(module, "config", None) or object
        values = [*vars(module).items(), *vars(config).items()]
        if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - no public base
            values.append(("dropout", module.p))
        for name, value in values:
            if "drop" in name and isinstance(value, (int, float)) and value > 0:
                return True
    return False


def _recompute(layer: Any) -> None:
    forward, draws = layer.forward, may_draw(layer)
    assert not hasattr(forward, _RECOMPUTED_MARK)

    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        # torch saves generators only of these arguments' devices, not of keyword arguments.
        assert isinstance(args[0], torch.Tensor)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=draws, **kwargs)

    setattr(recomputed, _RECOMPUTED_MARK, True)
    layer.forward = recomputed


def count_recomputed(model: VisionLanguageModel) -> int:
    """Return how many layers of the towers are recomputed, whatever wraps them."""
    layers = chain.from_iterable(model.towers())
    return sum(hasattr(layer.forward, _RECOMPUTED_MARK) for layer in layers)


# Residual stream in fp32, while autocast multiplies matrices in fp16.
#
# Each layer adds its output to its input. In models that were trained in bf16, such as the Qwen2
# family, these sums exceed the range of fp16 (65,504; QwenLM/Qwen3#868, ms-swift#5580), though
# the results of a single layer do not. Autocast adds in the wider of two types. So an fp32 input
# for the first layer of each tower is enough: all later sums are in fp32.


def keep_residual_in_fp32(model: VisionLanguageModel, device: torch.device) -> None:
    """Cast the input of the first layer of each tower to fp32 wherever autocast is on.

    Without autocast the model computes as before.

    Args:
        model: Before sharding; may be on "meta".
        device: Device of the computation.
    """
    for tower in model.towers():
        tower[0].register_forward_pre_hook(_cast_first_input)
    if device.type == "cpu":
        for module in model.modules():
            if type(module) is nn.LayerNorm:
                module.forward = functools.partial(_layer_norm, module)  # type: ignore[method-assign]


def _cast_first_input(_layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    first = args[0]
    if not torch.is_autocast_enabled(first.device.type):
        return args
    return (first.float(), *args[1:])


def _layer_norm(module: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    """Compute like autocast on a GPU; PyTorch on a CPU refuses fp32 input with fp16 weights."""
    if not torch.is_autocast_enabled(x.device.type):
        return functional.layer_norm(
            x, module.normalized_shape, module.weight, module.bias, module.eps
        )
    weight = None if module.weight is None else module.weight.float()
    bias = None if module.bias is None else module.bias.float()
    return functional.layer_norm(x.float(), module.normalized_shape, weight, bias, module.eps)


# Sizes that determine a model's operations, read from its modules; see `pipeline.timing.flops`.
#
# Read them before sharding, and again when other parts are trained.


_BASE = ".base_layer"
"""Suffix of adapted layers' names in peft."""
_ORDER = ("vision", "projector", "language", "head", "heads")
"""Order in which a gradient cannot pass from an earlier part to a later one."""
_Place = tuple[int, int]
"""In a pass: index of the part, and of the layer in it; -1 is before all layers."""


def read_work(model: VisionLanguageModel) -> ModelWork:
    """Return the matrices and attention of each part, and the gradients they take part in.

    Parameters that affect no output are left out, and so are classifier heads. A gradient is
    assumed to pass through a whole layer if anything in it, or before it, is trained. That
    slightly overestimates where only adapters are in the first such layer.
    """
    learned = {name: value.requires_grad for name, value in model.named_parameters()}
    trained = (place for name, place in _places(model, learned) if learned[name])
    first = min(trained, default=(len(_ORDER), 0))
    hf_config = getattr(getattr(model, "hf", None), "config", None)
    vision_config: Any = getattr(hf_config, "vision_config", None)
    # A vision tower's layers without windows (Qwen2.5-VL's); None for any other model.
    full = getattr(vision_config, "fullatt_block_indexes", None)
    num_weights: dict[str, Counter[int]] = {part: Counter() for part in _ORDER}
    widths: dict[tuple[str, bool], Counter[int]] = {
        (part, is_window): Counter() for part in _ORDER for is_window in (False, True)
    }
    unused = model.unused_parameters()
    matrices: dict[str, Any] = {  # 4-bit ones are linear layers, too
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv3d)
        and without_adapters(f"{name}.weight") not in unused
    }
    for name, place in _places(model, matrices):
        part, module = _ORDER[place[0]], matrices[name]
        # The output head's input needs no gradient if only the head is trained.
        passes = first < place or (first == place and part != "head")
        is_pixels = part == "vision" and not isinstance(module, nn.Linear)
        products = 1 + module.weight.requires_grad + (passes and not is_pixels)
        num_weights[part][products] += _num_weights(module)
        is_window = part == "vision" and full is not None and place[1] not in full
        widths[part, is_window][3 if passes else 1] += _query_width(name, module)
    works = {
        part: PartWork(
            num_weights=dict(num_weights[part]),
            attention_width=dict(+widths[part, False]),
            window_width=dict(+widths[part, True]),
        )
        for part in _ORDER
        if part != "heads"
    }
    window_patches = None
    if full is not None:
        window_patches = int(vision_config.window_size) // model.patch_size
    return ModelWork(**works, window_patches=window_patches)


def _places(model: VisionLanguageModel, names: Iterable[str]) -> Iterator[tuple[str, _Place]]:
    """Yield names of parameters, in order of definition, with their places.

    Modules of a tower after its layers are defined after them, too.
    """
    head, layers = model.output_head(), [layer for tower in model.towers() for layer in tower]
    (head_name,) = (name for name, module in model.named_modules() if module is head)
    prefixes = {"heads": ("heads.",), "head": (f"{head_name}.",), **model.part_prefixes()}
    ids = {id(layer) for layer in layers}
    lists = {n.rpartition(".")[0] + "." for n, m in model.named_modules() if id(m) in ids}
    behind: Counter[int] = Counter()
    for name in names:
        fits = (part for part, starts in prefixes.items() if name.startswith(starts))
        part = _ORDER.index(next(fits, "language"))
        start = next((start for start in lists if name.startswith(start)), None)
        if start is None or _ORDER[part] not in ("vision", "language"):
            yield name, (part, behind[part] - 1)
            continue
        layer = int(name.removeprefix(start).partition(".")[0])
        behind[part] = layer + 2
        yield name, (part, layer)


def _num_weights(module: Any) -> int:
    """Return the number of weights, without the weight itself, which may be packed or sharded."""
    if isinstance(module, nn.Linear):
        return module.in_features * module.out_features
    size = math.prod(module.kernel_size)
    return int(module.in_channels // module.groups * module.out_channels * size)


def _query_width(name: str, module: Any) -> int:
    """Return heads times head size of the matrix that makes queries; 0 for any other."""
    leaf = name.removesuffix(".weight").removesuffix(_BASE).rpartition(".")[2]
    if leaf == "q_proj":
        return int(module.out_features)
    return int(module.out_features) // 3 if leaf == "qkv" else 0  # queries, keys and values in one
