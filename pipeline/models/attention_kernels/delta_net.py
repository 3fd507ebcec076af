"""Gated delta nets (arXiv:2412.06464) of packed rows, which keep each sample's state apart.

Such a layer replaces attention in most layers of Qwen3.5. It reads a row from left to right, and
carries a state from token to token. So does the causal convolution before it. No attention mask
reaches these states: in a packed row, a sample would continue from the state of the sample before
it. transformers separates samples only with the packages fla and causal-conv1d.

Here the projections run once for the row, and the convolution and the delta rule once for each
sample, with transformers' own functions. These use fla and causal-conv1d if they are installed.

Measured for one layer, forward and backward, on one core of a CPU (4 heads of 128, hidden size
256, processor time in ms), against one padded batch of the samples, and against one row in which
each sample starts a chunk of 64 tokens and its state is cleared before the next:

| lengths of samples | each sample | padded batch | row of chunks |
| --- | ---: | ---: | ---: |
| 8 of 128 | 174 | 160 | 296 |
| 20 of 50 | 189 | 163 | 477 |
| 10 from 30 to 230 | 192 | 343 | 317 |
| 1 of 512 and 10 of 50 | 164 | 1,086 | 321 |

A padded batch saves up to a seventh where lengths are equal, and takes several times the time and
memory where they are not.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def has_delta_nets(text_config: Any) -> bool:
    """Check whether layers of a language model carry a state along the row."""
    return "linear_attention" in (getattr(text_config, "layer_types", None) or ())


def describe_states() -> str:
    """Describe how the samples of packed rows are kept apart, for the log."""
    packages = {"fla": "fla", "causal_conv1d": "causal-conv1d"}
    missing = [name for module, name in packages.items() if find_spec(module) is None]
    kernels = f" by PyTorch, without {' and '.join(missing)}" if missing else ""
    return f"gated delta nets: each packed sample from a state of its own{kernels}"


def is_delta_net(module: nn.Module) -> bool:
    """Check whether a module is a gated delta net, by the name of its projection."""
    return hasattr(module, "in_proj_qkv")


def keep_states_apart(language: Any) -> None:
    """Make the gated delta nets of a transformers model take the lengths of packed samples.

    Without lengths they compute like transformers. Parameters and their names do not change.

    Raises:
        ValueError: the model has linear attention of another kind.
    """
    nets = [module for module in language.modules() if is_delta_net(module)]
    num_expected = language.config.layer_types.count("linear_attention")
    if len(nets) != num_expected:
        message = f"{type(language).__name__}: linear attention in a form that is not known"
        raise ValueError(message)
    for net in nets:
        # A subclass, and not a function of the instance, so that the module can be copied.
        net.__class__ = _with_lengths(type(net))  # type: ignore[arg-type]  # mypy compares the instances' `__hash__`


@functools.cache
def _with_lengths(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass that takes the lengths of samples, under the same name."""

    def forward(
        self: nn.Module,
        hidden_states: torch.Tensor,
        *,
        sample_lengths: tuple[int, ...] | None = None,
        **options: Any,
    ) -> torch.Tensor:
        if sample_lengths is None:
            output: torch.Tensor = kind.forward(self, hidden_states, **options)
            return output
        return _mix_packed(self, hidden_states, sample_lengths)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _mix_packed(net: Any, hidden: torch.Tensor, sample_lengths: tuple[int, ...]) -> torch.Tensor:
    """Compute the layer for [num_rows, length, hidden_size], whose rows are read as one."""
    tokens = hidden.flatten(0, 1)[None]
    projected = net.in_proj_qkv(tokens)
    write_strength = net.in_proj_b(tokens).sigmoid()
    # In fp32, because the factor may be infinite in fp16.
    step = functional.softplus(net.in_proj_a(tokens).float() + net.dt_bias)
    log_decay = -net.A_log.float().exp() * step
    outputs = []
    start = 0
    for length in sample_lengths:
        sample = slice(start, start + length)
        outputs.append(
            _mix_sample(net, projected[:, sample], write_strength[:, sample], log_decay[:, sample])
        )
        start += length
    gates = net.in_proj_z(tokens).view(-1, net.head_v_dim)
    gated = net.norm(torch.cat(outputs, dim=1).view(-1, net.head_v_dim), gates)
    return net.out_proj(gated.view(*hidden.shape[:2], -1))


def _mix_sample(
    net: Any, projected: torch.Tensor, write_strength: torch.Tensor, log_decay: torch.Tensor
) -> torch.Tensor:
    """Compute convolution and delta rule of one sample, from an empty state.

    Args:
        net: The layer.
        projected: [1, length, size], of queries, keys and values.
        write_strength: [1, length, num_value_heads].
        log_decay: float32 [1, length, num_value_heads].

    Returns:
        [1, length, num_value_heads, value_head_size].
    """
    from transformers.models.qwen3_5.modeling_qwen3_5 import (
        causal_conv1d_fn,
        torch_chunk_gated_delta_rule,
    )

    weight = net.conv1d.weight.squeeze(1)
    convolved = causal_conv1d_fn(
        projected.transpose(1, 2), weight, net.conv1d.bias, activation=net.activation
    )
    sizes = [net.key_dim, net.key_dim, net.value_dim]
    queries, keys, values = convolved.transpose(1, 2).split(sizes, dim=-1)
    # transformers before 5.21 does not share keys among heads of values itself.
    num_sharing = net.num_v_heads // net.num_k_heads
    mixed, _ = torch_chunk_gated_delta_rule(
        queries.unflatten(-1, (net.num_k_heads, -1)).repeat_interleave(num_sharing, dim=2),
        keys.unflatten(-1, (net.num_k_heads, -1)).repeat_interleave(num_sharing, dim=2),
        values.unflatten(-1, (net.num_v_heads, -1)),
        g=log_decay,
        beta=write_strength,
        use_qk_l2norm_in_kernel=True,
    )
    return mixed
