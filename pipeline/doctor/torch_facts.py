"""Facts about PyTorch and the cards, from a process that may crash or hang."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slurm_jobs.common.commands import ask_together
from slurm_jobs.common.doctor_records import CardFacts, TorchFacts
from slurm_jobs.common.process import dies_with_parent

LIMIT_S = 90.0
"""A slow file system must read thousands of files; the job's time limit comes later."""
_MOST_BYTES = 200_000
MARK = "slurm-jobs doctor: "
"""Prefix of the answer's line: libraries print other lines."""
_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from pipeline.doctor.torch_facts import main; main()"
)


def ask_torch(limit_s: float = LIMIT_S) -> TorchFacts:
    """Import PyTorch in this Python, in a separate process, and return its facts."""
    values, problem = ask_python(_CODE, sys.path, limit_s=limit_s)
    if values is None:
        return TorchFacts(problem=f"importing torch: {problem}")
    values["cards"] = tuple(CardFacts(**card) for card in values["cards"])
    return TorchFacts(**values)


def ask_python(code: str, words: Sequence[str], *, limit_s: float) -> tuple[Any, str]:
    """Run code in this Python, in a separate process that may crash or hang.

    Args:
        code: Prints `MARK` and its answer as JSON.
        words: Its `sys.argv[1:]`.
        limit_s: Time after which the process is killed.

    Returns:
        The answer, or None and why there is none.
    """
    answer = ask_together(
        {"python": [sys.executable, "-c", code, *words]},
        limit_s=limit_s,
        max_bytes=_MOST_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )["python"]
    line = next((li for li in answer.text.splitlines() if li.startswith(MARK)), "")
    if not line:
        return None, answer.problem or "it printed nothing"
    return json.loads(line.removeprefix(MARK)), ""


def main() -> None:
    """Print the facts."""
    print(MARK + json.dumps(asdict(_facts())), flush=True)


def _facts() -> TorchFacts:
    start_s = time.monotonic()
    try:
        import torch
    except ModuleNotFoundError as error:
        return TorchFacts(problem=f"the package {error.name} is missing in {sys.executable}")
    except (ImportError, OSError) as error:  # a missing CUDA library
        return TorchFacts(problem=f"importing torch: {_first_line(error)}")
    import_s = time.monotonic() - start_s
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = _cards(torch)
    why = found.pop("cuda_problem") or next((_first_line(w.message) for w in said), "")
    return TorchFacts(
        version=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        import_s=import_s,
        cuda_problem="" if found["cards"] else why,
        **found,
    )


def _cards(torch: Any) -> dict[str, Any]:
    """Return cards, NCCL, and why there are no cards."""
    nccl = _nccl(torch)
    if not torch.cuda.is_available():
        return {"cards": (), "nccl": nccl, "cuda_problem": _why_no_cuda(torch)}
    # Only here: the preflight's modules import transformers, which takes as long again.
    from pipeline.training.preflight.device_facts import read_device
    from pipeline.training.preflight.wheel import code_problem

    cards = []
    try:
        for index in range(torch.cuda.device_count()):
            facts = read_device(torch.device("cuda", index))
            capability = ".".join(map(str, facts.capability or ()))
            problem = code_problem(facts) or ""
            cards.append(CardFacts(name=facts.name, capability=capability, problem=problem))
    except RuntimeError as error:
        return {"cards": tuple(cards), "nccl": nccl, "cuda_problem": _first_line(error)}
    return {"cards": tuple(cards), "nccl": nccl, "cuda_problem": ""}


def _nccl(torch: Any) -> str:
    if not torch.version.cuda:
        return ""
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (RuntimeError, AttributeError):  # a build without it
        return ""


def _why_no_cuda(torch: Any) -> str:
    if not torch.version.cuda:
        return f"torch {torch.__version__} is a build without CUDA"
    try:
        torch.cuda.init()
    except RuntimeError as error:
        return _first_line(error)
    return ""


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def nccl_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables of NCCL and the model hub on this node; never tokens."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_ENDPOINT", "TORCH_HOME")
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("NCCL_") or name in names
    }
