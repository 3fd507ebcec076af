"""Shared by all benchmarks: rows, their output, and the description of the machine."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A comparison. Smaller is better, unless the goal says `at least`."""

    case: str
    unit: str
    ours: float
    peer: str
    """The method compared with; `-` for a case without a peer."""
    peer_value: float | None
    goal: str
    """The goal as text; empty for a row without a goal."""
    met: bool | None

    @property
    def ratio(self) -> float | None:
        """Our value over the peer's."""
        return self.ours / self.peer_value if self.peer_value else None


def row(
    case: str,
    unit: str,
    ours: float,
    *,
    peer: str = "-",
    peer_value: float | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
    ratio_at_most: float | None = None,
    ratio_at_least: float | None = None,
) -> Row:
    """Return a row, checked against goals for our value or for its ratio to the peer's."""
    ratio = ours / peer_value if peer_value else None
    goals = (
        ("at most", at_most, lambda goal: ours <= goal),
        ("at least", at_least, lambda goal: ours >= goal),
        ("ratio at most", ratio_at_most, lambda goal: ratio is not None and ratio <= goal),
        ("ratio at least", ratio_at_least, lambda goal: ratio is not None and ratio >= goal),
    )
    stated = [(f"{words} {goal:g}", met(goal)) for words, goal, met in goals if goal is not None]
    return Row(
        case=case,
        unit=unit,
        ours=ours,
        peer=peer,
        peer_value=peer_value,
        goal=", ".join(text for text, _ in stated),
        met=all(met for _, met in stated) if stated else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Cost of a command."""

    wall_s: float
    cpu_s: float
    """User and system time of the command and the processes it waited for."""


def spent_by(command: Callable[[], object]) -> Spent:
    """Run a command in child processes, and return its cost."""
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command()
    wall_s = time.perf_counter() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall_s=wall_s, cpu_s=cpu_s)


def interleaved(commands: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, Spent]:
    """Return the median cost of each command; they take turns because the machine may be shared."""
    runs: dict[str, list[Spent]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(spent_by(command))
    return {
        name: Spent(
            wall_s=statistics.median(run.wall_s for run in spent),
            cpu_s=statistics.median(run.cpu_s for run in spent),
        )
        for name, spent in runs.items()
    }


def arguments(description: str | None) -> argparse.Namespace:
    """Parse `--quick` and `--json FILE`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under a minute, fewer repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    return parser.parse_args()


def machine() -> dict[str, str | int]:
    """Describe this machine."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
    }


def show(
    rows: Sequence[Row],
    options: argparse.Namespace,
    packages: Sequence[str] | Mapping[str, str],
    *,
    notes: Sequence[str] = (),
) -> None:
    """Print the table, including rows that miss their goals, and write the JSON file.

    `packages` are names, or versions by name if they are installed elsewhere; `notes` are lines
    under the table.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("case", "unit", "ours", "peer", "peer's", "ratio", "goal", "met"):
        table.add_column(
            column, justify="right" if column in {"ours", "peer's", "ratio"} else "left"
        )
    for shown in rows:
        table.add_row(
            shown.case,
            shown.unit,
            f"{shown.ours:.3g}",
            shown.peer,
            "-" if shown.peer_value is None else f"{shown.peer_value:.3g}",
            "-" if shown.ratio is None else f"{shown.ratio:.2f}",
            shown.goal or "-",
            {None: "-", True: "yes", False: "NO"}[shown.met],
        )
    Console(width=150).print(table)
    is_told = isinstance(packages, Mapping)
    values = {
        "machine": machine(),
        "versions": dict(packages) if is_told else {name: version(name) for name in packages},
        "rows": [{**asdict(shown), "ratio": shown.ratio} for shown in rows],
        "notes": list(notes),
    }
    for note in notes:
        print(note)
    print(", ".join(f"{key} {value}" for key, value in values["machine"].items()))
    if options.json is not None:
        options.json.write_text(json.dumps(values, indent=2) + "\n")
