"""Detection of an attempt that hangs, and of the rank that causes it.

A beat of any rank is progress: ranks that wait for each other count together. The patience is
the config's, but at least ten times the median step and three times the longest one. Outside of
steps (reading weights, staging, compilation, checkpoints, evaluation, export) it is several
times the config's, because reading or writing a large file shows no progress. Only time in which
this process itself ran counts, so that a suspended job or node is not late afterwards.
Collectives in the ranks have their own timeouts: a long suspension may end the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.base.files import read_json
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.records.failure_reason import rank_place
from slurm_jobs.formats.records.heartbeat import read_heartbeat, stacks_path
from slurm_jobs.worker.late_exit import returned_path
from slurm_jobs.worker.stacks import IN_COLLECTIVE, LIBRARIES, Frame, RankStacks, read_stacks

MEDIAN_FACTOR = 10.0
LONGEST_FACTOR = 3.0
OUTSIDE_FACTOR = 4.0
"""Factor outside of steps, and in the first ones, whose duration is still unknown."""
NUM_FIRST_STEPS = 3
"""Number of slow first steps in each phase (compilation, caches, the allocator)."""
COLLECTIVE_SHARE = 0.8
"""Share of a collective's timeout after which the ranks write their stacks, before waiting ranks
fail."""
DUMP_S = 3.0
"""Time from the request until a keeper ends its rank; the flight recorder is written meanwhile."""
_LOOK_S = 5.0
_FIRST_LOOK_S = 1.0
"""Interval of checks until a rank beats. Only each `_LOOKS_A_SURVEY`th checks more than rank 0,
because the folder is shared."""
_LOOKS_A_SURVEY = 5
_LOOKS_A_PATIENCE = 20
_MIN_LOOK_S = 0.1
_LONGEST_TICK_S = 1.0
"""Most time that one check adds. Checks are many per second, so a longer gap means that the job or
the node was suspended."""

Alarm = Literal["dump", "end"]


def stalled_path(task_dir: Path) -> Path:
    """Return the file that marks an attempt which is being ended without progress."""
    return task_dir / "stalled.json"


def patience_s(beat: Mapping[str, Any]) -> float:
    """Return how long an attempt may go without a beat after this one, in seconds."""
    stall_s = float(beat["stall_s"])
    median_s, longest_s = float(beat["median_step_s"]), float(beat["longest_step_s"])
    slow_s = max(MEDIAN_FACTOR * median_s, LONGEST_FACTOR * longest_s)
    if beat["doing"] != "steps" or beat["steps"] < NUM_FIRST_STEPS:
        return max(OUTSIDE_FACTOR * stall_s, slow_s)
    return max(stall_s, slow_s)


class StallWatch:
    """State of the watch over one attempt."""

    def __init__(self, task_dir: Path, num_ranks: int) -> None:
        self._task_dir, self._num_ranks = task_dir, num_ranks
        self._beats: dict[int, dict[str, Any]] = {}
        self._tick_s = time.monotonic()
        self._look_s = _FIRST_LOOK_S
        self._since_look_s = 0.0
        self._num_looks = 0
        self.idle_s = 0.0
        """Time without a beat."""
        self.patience_s = 0.0
        self.has_dumped = False
        """True if stacks were requested, and no rank has made progress since."""

    @property
    def has_beats(self) -> bool:
        """Return whether a rank has a heartbeat."""
        return bool(self._beats)

    def tick(self, *, may_end: bool = True) -> Alarm | None:
        """Check for progress if it is time to, and return the required action; call it often.

        If the attempt may not be ended, its ranks write their stacks once instead.
        """
        now_s = time.monotonic()
        passed_s = min(now_s - self._tick_s, _LONGEST_TICK_S)
        self._tick_s = now_s
        self._since_look_s += passed_s
        self.idle_s += passed_s
        if self._since_look_s < self._look_s:
            return None
        self._since_look_s = 0.0
        has_progress, beats = self._read_beats(), self._beats.values()
        if has_progress or not beats:
            self.idle_s, self.has_dumped = 0.0, False
        if not beats:
            return None
        self.patience_s = max(map(patience_s, beats))
        collective_s = min(float(beat["collective_s"]) for beat in beats)
        shortest_s = min(collective_s, *(beat["stall_s"] for beat in beats))
        self._look_s = max(_MIN_LOOK_S, min(_LOOK_S, shortest_s / _LOOKS_A_PATIENCE))
        # `late_exit` watches ranks whose function has returned.
        is_late = self.idle_s > self.patience_s and not all(
            returned_path(self._task_dir, rank).exists() for rank in range(self._num_ranks)
        )
        if is_late and may_end:
            return "end"
        is_near_timeout = self.idle_s > COLLECTIVE_SHARE * collective_s and self._num_ranks > 1
        if (is_late or is_near_timeout) and not self.has_dumped:
            self.has_dumped = True
            return "dump"
        return None

    def _read_beats(self) -> bool:
        """Read new heartbeats, and return whether there was one.

        Rank 0 is read first, and is enough if it has progressed. Before the first heartbeat, the
        other ranks are read only every few times.
        """
        has_progress = False
        self._num_looks += 1
        is_survey = bool(self._beats) or self._num_looks % _LOOKS_A_SURVEY == 0
        for rank in range(self._num_ranks if is_survey else 1):
            beat = read_heartbeat(self._task_dir, rank)
            if beat is not None and beat != self._beats.get(rank):
                self._beats[rank] = beat
                has_progress = True
            if rank == 0 and has_progress:
                break
        return has_progress


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockingRank:
    """Rank that an attempt waited for."""

    rank: int
    node: str | None
    doing: str
    """What it does, and what the others do."""
    stacks: Path
    """Pattern of the files with the stacks of all ranks."""

    @property
    def text(self) -> str:
        """Return the sentence for the reason."""
        where = f"rank {self.rank}" if self.node is None else rank_place(self.rank, self.node)
        return f"{where} {self.doing}. Stacks: {self.stacks}"


def find_cause(task_dir: Path, num_ranks: int) -> BlockingRank | None:
    """Return the rank that the others waited for, from the stacks of all of them.

    A rank whose function has returned, or failed, counts if it wrote its stacks before; None if no
    rank is left.
    """
    stacks = {rank: read_stacks(task_dir, rank) for rank in range(num_ranks)}
    stacks = {
        rank: stack
        for rank, stack in stacks.items()
        if stack.main or not returned_path(task_dir, rank).exists()
    }
    if not stacks:
        return None
    rank, doing = describe_cause(stacks)
    started = task_dir / f"rank-{rank:05d}.started.json"
    node = str(read_json(started)["node"]) if started.exists() else None
    files = stacks_path(task_dir, 0).name.replace("00000", "*")
    return BlockingRank(rank=rank, node=node, doing=doing, stacks=task_dir / files)


def describe_cause(stacks: Mapping[int, RankStacks]) -> tuple[int, str]:
    """Return the rank that is the cause, and a description of it and of the others.

    Candidates are the ranks of the first class that occurs: no answer; outside of passes and
    collectives; in a pass; waiting for the device; in a collective. If all ranks are of one class,
    they are grouped by stack, and the smallest group is the cause.
    """
    kinds = {rank: stack.kind for rank, stack in stacks.items()}
    least = min(kinds.values())
    causes = [rank for rank, kind in kinds.items() if kind == least]
    others = [rank for rank in stacks if rank not in causes]
    if not others:
        places: dict[tuple[Frame, ...], list[int]] = {}
        for rank in causes:
            places.setdefault(stacks[rank].main, []).append(rank)
        causes = min(places.values(), key=lambda ranks: (len(ranks), ranks))
        others = [rank for rank in stacks if rank not in causes]
    text = _doing(stacks[causes[0]])
    if len(causes) > 1:
        text += f" (as {'are' if len(causes) > 2 else 'is'} {_ranks(causes[1:])})"
    if others:
        waiting = [rank for rank in others if kinds[rank] == IN_COLLECTIVE]
        if waiting == others:
            text += f"; {_ranks(others)} {'wait' if len(others) > 1 else 'waits'} in a collective"
            text += f", {_place(stacks[others[0]])}"
        else:
            text += f"; {_ranks(others)}: {_doing(stacks[others[0]])}"
    return causes[0], text


def _doing(stacks: RankStacks) -> str:
    if not stacks.was_asked:
        return "did not get the request for its stacks: its node or its keeper is gone"
    if not stacks.main:
        return f"did not answer the request for its stacks: its process is in state {stacks.state}"
    phase = "a collective" if stacks.collective is not None else stacks.phase
    return f"was in {phase}, {_place(stacks)}" if phase else f"was {_place(stacks)}"


def _place(stacks: RankStacks) -> str:
    frame = stacks.innermost
    if (call := stacks.collective) is not None:
        return f"{call[0].function} called at {call[1]}"
    own = next((frame for frame in stacks.main if not LIBRARIES.search(frame.file)), None)
    if own is not None and own != stacks.main[0] and not stacks.phase:
        return f"at {own}, in {stacks.main[stacks.main.index(own) - 1].function}"
    return f"at {frame}" if frame is not None else "at no line of Python"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges_text(ranks)}"
