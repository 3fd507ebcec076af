"""Check that this build of PyTorch has code for the card, and that the card supports the config.

Without code for the card the first kernel fails ("no kernel image is available"), after
staging, after reading the weights, and possibly after days in the queue. The rules are
NVIDIA's: see "CUDA C++ Programming Guide", Compute Capability, Binary Compatibility and PTX
Compatibility.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.train.device.device_facts import DeviceFacts
from slurm_jobs.formats.configs.train import TrainConfig

_ENTRY = re.compile(r"(sm|compute)_(\d+)([af]?)")


def card_problem(facts: DeviceFacts, config: TrainConfig) -> str | None:
    """Return why this card cannot compute what the config needs, with the remedy."""
    if no_code := code_problem(facts):
        return no_code
    if config.quantize is not None and facts.capability is not None and facts.capability < (6, 0):
        return (
            f"quantize is set, but {facts} is older than the 4-bit kernels, which need 6.0: "
            "remove quantize, or request a V100 or newer (resources.gpu)"
        )
    return None


def compile_warning(facts: DeviceFacts, config: TrainConfig) -> str | None:
    """Warn that Triton may not work on this card.

    Source: https://github.com/triton-lang/triton, Compatibility; a V100 failed:
    jwohlwend/boltz#315.
    """
    if config.compile is None or config.compile.backend != "inductor":
        return None
    if facts.capability is None or facts.capability >= (8, 0):
        return None
    return (
        f"compile.backend is inductor, but {facts} is older than the cards that Triton supports "
        "(compute capability 8.0): Triton 3.3 and later has failed on a V100. If the first step "
        "fails or is slow, remove `compile`"
    )


def code_problem(facts: DeviceFacts) -> str | None:
    """Return why this build has no code for the card, whatever the config, with the remedy."""
    if facts.capability is None or runs_on(facts.arch_list, facts.capability):
        return None
    # CUDA 12.8 and later have no code for older cards; PyTorch's builds for 12.6 still have.
    if facts.capability < (7, 5):
        remedy = (
            "install the build for CUDA 12.6 in the stage's Python, the only one that still has "
            "it, before torch 2.15: pip install 'torch<2.15' --index-url "
            "https://download.pytorch.org/whl/cu126"
        )
    else:
        remedy = (
            f"install a build of PyTorch that has sm_{facts.capability[0]}{facts.capability[1]} in "
            "the stage's Python (https://pytorch.org/get-started/locally)"
        )
    return (
        f"torch {facts.torch_version} has no code for {facts}, but for "
        f"{', '.join(facts.arch_list)}: {remedy}; or request another card (resources.gpu)"
    )


def runs_on(arch_list: Sequence[str], capability: tuple[int, int]) -> bool:
    """Check whether a build with code for `arch_list` runs on a card of that compute capability.

    `sm_XY` is machine code, for cards of the same major number and no smaller minor one.
    `compute_XY` is PTX, which the driver compiles for any newer card. The suffix `a` limits it
    to that card, `f` to its family. A list without such an entry (AMD's) is not judged.
    """
    known = [match.groups() for match in map(_ENTRY.fullmatch, arch_list) if match]
    for kind, number, suffix in known:
        made_for = divmod(int(number), 10)
        if suffix == "a":
            runs = made_for == capability
        elif kind == "compute" and not suffix:
            runs = made_for <= capability
        else:
            runs = made_for[0] == capability[0] and made_for[1] <= capability[1]
        if runs:
            return True
    return not known
