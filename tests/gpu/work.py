"""What a case gets to work with, and the record it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

_ROOT = Path(__file__).parents[2]
Status = Literal["passed", "failed", "slower than expected", "not possible here"]


class NotPossibleError(Exception):
    """The case needs something that this machine or environment lacks."""


@dataclass(kw_only=True)
class Work:
    """One case in its own process."""

    device: str
    """`cuda` or `cpu`."""
    folder: Path
    """Scratch folder of this case."""
    shared: Path
    """Scratch folder of all cases of a run, for data that several need."""
    record: Path
    """JSON lines that the case has written so far."""
    is_short: bool = False
    """Whether to do the least that shows that the case works."""

    @property
    def has_gpu(self) -> bool:
        """Whether the case runs on a GPU."""
        return self.device == "cuda"

    @property
    def torch_device(self) -> torch.device:
        """The device that a training with one rank uses: a GPU with its number."""
        import torch

        return torch.device("cuda", 0) if self.has_gpu else torch.device("cpu")

    def need_gpu(self, why: str) -> None:
        """Stop here on a CPU.

        Raises:
            NotPossibleError: the device is not a GPU.
        """
        if not self.has_gpu:
            raise NotPossibleError(why)

    def need_package(self, name: str) -> None:
        """Stop here without a package.

        Raises:
            NotPossibleError: it is not installed.
        """
        import importlib.util

        if importlib.util.find_spec(name) is None:
            message = f"the package {name} is missing"
            raise NotPossibleError(message)

    def note(self, **figures: Any) -> None:
        """Write down figures."""
        self._write({"figures": figures})

    def check(self, name: str, passed: object, detail: object = "") -> None:
        """Write down whether something holds; the case continues, and fails at its end."""
        self._write({"check": name, "passed": bool(passed), "detail": str(detail)})

    def close_to(self, name: str, value: float, expected: float, tolerance: float) -> None:
        """Check a relative difference."""
        difference = abs(value - expected) / max(abs(expected), 1e-30)
        self.check(name, difference <= tolerance, f"{value:.6g}, expected {expected:.6g}, "
                   f"difference {difference:.2g}, tolerance {tolerance:g}")  # fmt: skip

    def at_least(self, name: str, value: float, goal: float) -> None:
        """Write down a figure with a goal; below it, the case is slower than expected."""
        self._goal(name, value, goal, is_met=value >= goal)

    def at_most(self, name: str, value: float, goal: float) -> None:
        """Write down a figure with a goal; above it, the case is slower than expected."""
        self._goal(name, value, goal, is_met=value <= goal)

    def _goal(self, name: str, value: float, goal: float, *, is_met: bool) -> None:
        self._write({"goal": name, "met": bool(is_met), "detail": f"{value:.4g}, goal {goal:g}"})

    def not_possible(self, what: str, reason: str) -> None:
        """Write down a part of the case that cannot run here; the rest continues."""
        self._write({"left_out": what, "reason": reason})

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.record.open("a", encoding="utf-8") as stream:
            # Paths of the project, without those of the machine.
            stream.write(json.dumps(entry, default=str).replace(f"{_ROOT}/", "") + "\n")


@dataclass(kw_only=True)
class CaseResult:
    """What came of a case."""

    name: str
    status: Status
    seconds: float
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)


def missing_package(error: ImportError) -> str | None:
    """Return the package of others that an import misses; None if the fault may be ours."""
    required = re.search(r"requires the (\w+) library", str(error))  # as transformers says it
    if required:
        return required[1]
    is_ours = (error.name or "").partition(".")[0] in {"", "pipeline", "slurm_jobs", "tests"}
    return error.name if isinstance(error, ModuleNotFoundError) and not is_ours else None


def read_result(name: str, record: Path, end: Mapping[str, Any], seconds: float) -> CaseResult:
    """Return the result of a case from its record and from how its process ended.

    Args:
        name: Of the case.
        record: JSON lines; may be missing.
        end: `error` if the process did not end well, or `not_possible`.
        seconds: That it took.
    """
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    result = CaseResult(name=name, status="passed", seconds=round(seconds, 1))
    for entry in map(json.loads, lines):
        if "figures" in entry:
            result.figures.update(entry["figures"])
        elif "left_out" in entry:
            result.left_out.append(entry)
        else:
            result.checks.append(entry)
    failed = [entry for entry in result.checks if not entry.get("passed", True)]
    slow = [entry for entry in result.checks if not entry.get("met", True)]
    if end.get("error"):
        result.status, result.reason = "failed", end["error"]
    elif failed:
        result.status, result.reason = "failed", _named(failed, "check")
    elif end.get("not_possible"):
        result.status, result.reason = "not possible here", end["not_possible"]
    elif slow:
        result.status, result.reason = "slower than expected", _named(slow, "goal")
    elif not result.checks and not result.figures:
        result.status, result.reason = "failed", "it wrote nothing"
    return result


def _named(entries: Iterable[Mapping[str, Any]], key: str) -> str:
    return "; ".join(f"{entry[key]}: {entry['detail']}" for entry in entries)
