"""Facts about PyTorch and the cards, from a process that may crash or hang."""

from __future__ import annotations

import json
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pipeline.nodes.doctor.separate_python import MARK, ask_python
from slurm_jobs.formats.node_records.doctor_facts import CardFacts, TorchFacts

LIMIT_S = 90.0
"""A slow file system must read thousands of files; the job's time limit comes later."""
_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from pipeline.nodes.doctor.torch_facts import main; main()"
)


def ask_torch(limit_s: float = LIMIT_S) -> TorchFacts:
    """Import PyTorch in this Python, in a separate process, and return its facts."""
    values, problem = ask_python(_CODE, sys.path, limit_s=limit_s)
    if values is None:
        return TorchFacts(problem=f"importing torch: {problem}")
    values["cards"] = tuple(CardFacts(**card) for card in values["cards"])
    return TorchFacts(**values)


def main() -> None:
    """Print the facts, called in the separate process."""
    print(MARK + json.dumps(asdict(_torch_facts())), flush=True)


def _torch_facts() -> TorchFacts:
    start_s = time.monotonic()
    try:
        import torch
    except ModuleNotFoundError as error:
        return TorchFacts(problem=f"the package {error.name} is missing in {sys.executable}")
    except (ImportError, OSError) as error:  # a missing CUDA library
        return TorchFacts(problem=f"importing torch: {_first_line(error)}")
    import_s = time.monotonic() - start_s
    cuda, nccl, cuda_problem = str(torch.version.cuda or ""), "", ""
    torch_cuda: Any = torch.cuda  # not all of it has types
    cards: list[CardFacts] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cuda:
            with suppress(RuntimeError, AttributeError):  # a build without it
                nccl = ".".join(map(str, torch_cuda.nccl.version()))
        try:
            if torch.cuda.is_available():
                _read_cards(cards)
            elif cuda:
                torch_cuda.init()
            else:
                cuda_problem = f"torch {torch.__version__} is a build without CUDA"
        except RuntimeError as error:
            cuda_problem = _first_line(error)
    cuda_problem = cuda_problem or next((_first_line(w.message) for w in caught), "")
    return TorchFacts(
        version=str(torch.__version__),
        cuda=cuda,
        nccl=nccl,
        import_s=import_s,
        cards=tuple(cards),
        cuda_problem="" if cards else cuda_problem,
    )


def _read_cards(cards: list[CardFacts]) -> None:
    """Append the cards one by one, so that those before a failing one are kept."""
    import torch

    # Only here: the preflight's modules import transformers, which takes as long again.
    from pipeline.train.device.card_support import code_problem
    from pipeline.train.device.device_facts import read_device

    for index in range(torch.cuda.device_count()):
        facts = read_device(torch.device("cuda", index))
        capability = ".".join(map(str, facts.capability or ()))
        problem = code_problem(facts) or ""
        cards.append(CardFacts(name=facts.name, capability=capability, problem=problem))


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
