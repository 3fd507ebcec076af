"""The peers of one benchmark: their processes, data sets and measurements."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.job import DECODED, Job
from benchmarks.peers.process import PeerFailedError, PeerProcess
from benchmarks.peers.sets import NUM_SAMPLES, NUM_SAMPLES_QUICK, make_set

if TYPE_CHECKING:
    from typing_extensions import Self

OURS, PLAIN = "ours", "plain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured."""

    num_rounds: int
    """Rounds in which the peers take turns."""
    num_tries: int
    """Measurements of each number of workers before the rounds."""
    at_least_s: float
    num_samples: Mapping[str, int]


FULL = Effort(num_rounds=5, num_tries=2, at_least_s=0.5, num_samples=NUM_SAMPLES)
QUICK = Effort(num_rounds=1, num_tries=1, at_least_s=0.02, num_samples=NUM_SAMPLES_QUICK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Measured speed of reading."""

    rate: float
    """Samples per second of wall time."""
    cpu_us: float
    """CPU microseconds per sample, without worker processes."""

    @classmethod
    def median(cls, results: Sequence[Self]) -> Self:
        """Return the median of each field."""
        return cls(
            rate=statistics.median(result.rate for result in results),
            cpu_us=statistics.median(result.cpu_us for result in results),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """The peers that are available."""

    effort: Effort
    folder: Path
    processes: dict[str, PeerProcess]
    """Peers that can be imported, by module."""
    names: dict[str, str]
    """For the table, by module."""
    versions: dict[str, str]
    """By package."""
    notes: list[str]
    """What was left out, and why."""

    @classmethod
    def start(
        cls, stack: contextlib.ExitStack, name: str, modules: Sequence[str], effort: Effort
    ) -> Self:
        """Start a process for each peer; they end with the stack."""
        folder = _folder(name, effort)
        log = folder / "peers.log"
        log.unlink(missing_ok=True)
        started = {name: stack.enter_context(PeerProcess(name, log)) for name in modules}
        bench = cls(effort=effort, folder=folder, processes={}, names={}, versions={}, notes=[])
        for module, process in started.items():
            try:
                answer = process.hello()
            except PeerFailedError as error:
                if module == OURS:
                    raise
                bench.notes.append(f"{module} left out: {error}")
                continue
            bench.processes[module] = process
            bench.names[module] = answer["name"]
            bench.versions[answer["package"]] = answer["version"]
        return bench

    def build(self, kind: str) -> None:
        """Build the set of one kind in every format that has it; later runs reuse it."""
        root = self.folder / kind
        with _built(root / OURS) as target:
            if target is not None:
                print(f"making the set {kind!r} in {root}", file=sys.stderr)
                make_set(target, kind, self.effort.num_samples[kind])
        for name in self.processes:
            if name == OURS or (name == PLAIN and kind == DECODED):
                continue
            try:
                with _built(root / name) as target:
                    if target is not None:
                        self._ask_to_build(name, target, kind)
            except PeerFailedError as error:
                self.notes.append(f"{self.names[name]} has no set {kind!r}: {error}")

    def _ask_to_build(self, name: str, target: Path, kind: str) -> None:
        source = self.folder / kind / OURS / "source"
        self.processes[name].ask(build=str(target), source=str(source), kind=kind)

    def set_of(self, name: str, kind: str) -> Path:
        """Return the folder of a peer's set."""
        folder = self.folder / kind / name
        return folder / "consolidate" / "output" if name == OURS else folder

    def measure(self, name: str, job: Job) -> Measured:
        """Measure passes after an uncounted one.

        Raises:
            PeerFailedError: the peer failed.
        """
        return _measured(self.processes[name].ask(**self._question(name, job)))

    def first_pass(self, name: str, job: Job) -> Measured:
        """Measure the first pass of a new process.

        Raises:
            PeerFailedError: the peer failed.
        """
        with PeerProcess(name, self.folder / "peers.log") as process:
            process.hello()
            question = self._question(name, job)
            return _measured(process.ask(**{**question, "at_least_s": 0.0, "first": True}))

    def _question(self, name: str, job: Job) -> dict[str, Any]:
        return {
            "folder": str(self.set_of(name, job.kind)),
            "job": asdict(job),
            "at_least_s": self.effort.at_least_s,
        }

    def in_turn(self, jobs: Mapping[str, Job]) -> dict[str, Measured]:
        """Return the medians of all rounds, then close what the peers have open."""
        results: dict[str, list[Measured]] = {name: [] for name in jobs}
        for _ in range(self.effort.num_rounds):
            for name, job in jobs.items():
                results[name].append(self.measure(name, job))
        for name in jobs:
            self.processes[name].ask(close=True)
        return {name: Measured.median(measured) for name, measured in results.items()}


def _measured(answer: Mapping[str, Any]) -> Measured:
    return Measured(
        rate=answer["num_samples"] / answer["wall_s"],
        cpu_us=1e6 * answer["cpu_s"] / answer["num_samples"],
    )


def _folder(name: str, effort: Effort) -> Path:
    """Return the folder of the sets; it depends on their sizes and on our format."""
    from pipeline.data.disk_format.dataset_info import DATASET_FORMAT

    sizes = "-".join(str(num) for num in effort.num_samples.values())
    name = f"slurm-jobs-{name}-{os.getuid()}-{DATASET_FORMAT}-{sizes}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextlib.contextmanager
def _built(folder: Path) -> Iterator[Path | None]:
    """Yield a folder that becomes `folder` on success; None if `folder` exists."""
    if folder.exists():
        yield None
        return
    attempt = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(attempt, ignore_errors=True)
    attempt.parent.mkdir(parents=True, exist_ok=True)
    yield attempt
    attempt.rename(folder)
