"""Choice of a run's trace, and the advice where there is none."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import read_json
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_values import stages_named
from slurm_jobs.spec.combinations import origin_of

_FILES = "*/rank-*.trace.json.gz"
_USUAL_STEPS = (20, 40)
"""Recorded steps: after the warm-up of most trainings, and few enough to be written in a minute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTrace:
    """Trace that a rank recorded in an attempt."""

    path: Path
    stage: str
    rank: int

    @property
    def attempt(self) -> str:
        """Name of its folder: `s00000.a0002`."""
        return self.path.parent.name

    @property
    def title(self) -> str:
        """Text such as `train, s00000.a0002, rank 0`."""
        return f"{self.stage}, {self.attempt}, rank {self.rank}"


def find_trace(run_dir: Path, stage: str | None, rank: int | None) -> FoundTrace:
    """Return the trace of the newest attempt that has one; of its first rank if none is named.

    Raises:
        InputError: no trace exists, or the stage must be named, or is not in the run.
    """
    paths = RunPaths(run_dir)
    folder = paths.timing_stage_dir("x").parent
    every = [
        FoundTrace(
            path=path, stage=stage_dir.name, rank=int(path.name.split(".")[0][len("rank-") :])
        )
        for stage_dir in (sorted(folder.iterdir()) if folder.is_dir() else [])
        for path in sorted(stage_dir.glob(_FILES))
    ]
    of_stage = [trace for trace in every if stage in {None, trace.stage}]
    names = list(dict.fromkeys(trace.stage for trace in of_stage))
    if len(names) > 1:
        message = f"stages {', '.join(names)} have profiles; name one with --stage"
        raise InputError(message)
    if not of_stage:
        if stage is not None:
            stages_named(stage, dict.fromkeys(read_resolved_values(paths)["stages"], ""))
        raise InputError(_no_trace(paths, every, stage, rank))
    meant = [trace for trace in of_stage if rank in {None, trace.rank}]
    if not meant:
        raise InputError(_no_rank(paths, of_stage, rank))
    newest = max(trace.attempt for trace in meant)
    return min((t for t in meant if t.attempt == newest), key=lambda t: t.rank)


def _no_rank(paths: RunPaths, traces: Sequence[FoundTrace], rank: int | None) -> str:
    name, there = traces[0].stage, sorted({trace.rank for trace in traces})
    message = (
        f"stage {name} of {paths.run_dir.name} has no profile of rank {rank}; it has those of "
        f"rank {ranges_text(there)}"
    )
    stage = _trainings(paths).get(name, {})
    num_ranks = _num_ranks(stage)
    if rank is None or not 0 <= rank < num_ranks:
        return f"{message}, and has {num_ranks} in all, from 0 on"
    return f"{message}; {_to_record(paths, name, stage, [*there, rank])}"


def _no_trace(
    paths: RunPaths, traces: Sequence[FoundTrace], name: str | None, rank: int | None
) -> str:
    of_what = f"stage {name} of {paths.run_dir.name}" if name else f"run {paths.run_dir.name}"
    others = ", ".join(dict.fromkeys(trace.stage for trace in traces))
    message = f"{of_what} has no profile{f'; stage {others} has' if others else ''}"
    trainings = _trainings(paths)
    if name is not None and name not in trainings:
        return f"{message}; `run: train` in this run: {', '.join(trainings) or 'no stage'}"
    if not trainings:
        return f"{message}, and no stage with `run: train`, whose steps could be recorded"
    meant = name or next(iter(trainings))
    num_ranks = _num_ranks(trainings[meant])
    if rank is not None and rank >= num_ranks:
        return f"{message}; its training `{meant}` has {num_ranks} ranks, from 0 on, and no {rank}"
    return f"{message}; {_to_record(paths, meant, trainings[meant], [rank or 0])}"


def _num_ranks(stage: Mapping[str, Any]) -> int:
    resources = stage.get("resources") or {}
    nodes, tasks = resources.get("nodes") or 1, resources.get("tasks_per_node") or 1
    return int(nodes) * int(tasks)


def _to_record(paths: RunPaths, name: str, stage: Mapping[str, Any], ranks: Sequence[int]) -> str:
    """Return the command that records these ranks."""
    config = stage.get("config") or {}
    profile = config.get("profile") or {}
    asked = profile.get("ranks") or [0]
    if profile.get("steps") and set(ranks) <= set(asked):
        first, last = profile["steps"]
        return (
            f"its spec asks for steps {first} to {last} on rank {ranges_text(asked)}: they are "
            "not made yet, or were before it asked (a resume makes no step again: submit it as a "
            "new run), or its log says what went wrong\n"
            f"next: slurm-jobs logs {shlex.quote(str(paths.run_dir))} {name}"
        )
    steps, num_steps = profile.get("steps") or _USUAL_STEPS, config.get("num_steps")
    if not profile.get("steps") and num_steps is not None and num_steps <= _USUAL_STEPS[1]:
        steps = num_steps // 2, max(num_steps - 1, 0)  # the later half of a short training
    first, last = steps
    ranks_text = "" if list(ranks) == [0] else f", ranks: {sorted(ranks)}"
    key = f"stages.{origin_of(name, stage.get('matrix')) or name}.config.profile"
    origin = read_json(paths.spec_origin)  # overrides from the command line of the run count, too
    given = origin.get("overrides")
    overrides = given if isinstance(given, list) and all(isinstance(o, str) for o in given) else []
    overrides = [*overrides, f"{key}={{steps: [{first}, {last}]{ranks_text}}}"]
    words = [origin["spec_file"], *(word for o in overrides for word in ("--set", o))]
    return (
        "a new run records one (a resume makes no step again)\n"
        f"next: slurm-jobs submit {shlex.join(words)}"
    )


def _trainings(paths: RunPaths) -> Mapping[str, Mapping[str, Any]]:
    stages = read_resolved_values(paths)["stages"]
    return {name: stage for name, stage in stages.items() if stage.get("run") == "train"}
