"""Stages, slices and logs that the options of `logs` select."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.cli.run_logs.log_files import (
    explaining_logs,
    has_text,
    rank_logs,
    ranks_with_logs,
    supervisor_logs,
)
from slurm_jobs.run_folder.cleanings import are_logs_cleaned, cleaned_note
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_stage_records
from slurm_jobs.run_folder.run_values import stages_named

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import RunStatus, StageStatus
    from slurm_jobs.status.slice_status import SliceStatus, Status


class LogChoice:
    """Selected stages of a run, and their slices and logs."""

    def __init__(
        self,
        run_dir: Path,
        status: RunStatus,
        stage_name: str | None,
        options: argparse.Namespace,
    ) -> None:
        """Choose the stages.

        Raises:
            InputError: none of them has the named slice, or the stage does not exist.
        """
        self.run_dir = run_dir
        self.options = options
        self._paths = RunPaths(run_dir)
        self.only: Status | None = "failed" if options.failed else None
        """Status of the slices that are selected; None for any."""
        self.is_stage_named = stage_name is not None
        if stage_name is not None:  # all combinations of a matrix
            origins = {stage.stage.name: stage.stage.origin for stage in status.stages}
            self.stages = [status.stage(name) for name in stages_named(stage_name, origins)]
        elif options.grep is not None or options.failed:
            self.stages = self._with_slice(status.stages)
            failed = [s for s in self.stages if any(p.status == "failed" for p in s.slices)]
            if options.failed and not options.follow and failed:
                self.stages = failed
        else:
            self.stages = self._unnamed(status)
        for stage in self.stages:
            number = stage.stage.num_slices
            if options.slice_index is not None and not 0 <= options.slice_index < number:
                which = f"the slices 0 to {number - 1}" if number > 1 else "slice 0 alone"
                message = f"--slice {options.slice_index}: `{stage.stage.name}` has {which}"
                raise InputError(message)
        self.with_stage = len(self.stages) > 1 or (stage_name is None and len(status.stages) > 1)
        """True if the name of a log needs its stage."""

    def _with_slice(self, stages: Sequence[StageStatus]) -> list[StageStatus]:
        """Return the stages that have the named slice; all if none has it."""
        index = self.options.slice_index
        able = [s for s in stages if index is None or 0 <= index < s.stage.num_slices]
        return able or list(stages)

    def _unnamed(self, status: RunStatus) -> list[StageStatus]:
        """Return what failed, else what runs, else the last completed stage that printed.

        What is followed must be able to grow: what runs, else the first stage that waits.
        """
        stages = self._with_slice(status.stages)
        follow, index = self.options.follow, self.options.slice_index
        words: tuple[Status, ...] = ("running", "waiting") if follow else ()
        for word in (*words, "failed", "running"):
            matching = [
                stage
                for stage in stages
                if any(p.status == word and index in {None, p.slice_index} for p in stage.slices)
            ]
            if matching:
                if index is None and word not in words:
                    self.only = word
                return matching[:1] if word == "waiting" else matching
        completed = [stage for stage in stages if stage.status == "completed"]
        others = [stage for stage in stages if stage.status != "completed"]  # cancelled ones
        for stage in (*reversed(completed), *reversed(others)):
            if any(has_text(log) for log in self.logs(stage)):
                return [stage]
        return completed[-1:] or stages[:1]

    @property
    def name(self) -> str:
        """Return `train`, or `embed` slice 3, in backticks."""
        names = ", ".join(f"`{stage.stage.name}`" for stage in self.stages)
        index = self.options.slice_index
        return names if index is None else f"{names} slice {index}"

    @property
    def is_one_log(self) -> bool:
        """True if the user named the stage, and the slice of an array."""
        is_array = any(stage.stage.is_array for stage in self.stages)
        is_slice_named = self.options.slice_index is not None or not is_array
        return not self.with_stage and is_slice_named

    def slices(self, stage: StageStatus) -> list[SliceStatus]:
        """Return the selected slices of a stage."""
        index = self.options.slice_index
        parts = [part for part in stage.slices if index in {None, part.slice_index}]
        return [part for part in parts if self.only in {None, part.status}]

    def logs(
        self,
        stage: StageStatus,
        slices: Sequence[SliceStatus] | None = None,
        since: Mapping[int, int] | None = None,
    ) -> list[Path]:
        """Return the existing logs of a stage's slices; `since`: see `rank_logs`."""
        name, options = stage.stage.name, self.options
        slices = self.slices(stage) if slices is None else slices
        attempt = options.attempt
        if options.supervisor:
            return supervisor_logs(self._paths, name, slices, attempt=attempt)
        return rank_logs(self._paths, name, slices, rank=options.rank, attempt=attempt, since=since)

    def explaining(
        self, stage: StageStatus, slices: Sequence[SliceStatus], shown: Sequence[Path]
    ) -> list[Path]:
        """Return supervisors' logs to show unasked: of the newest attempts, if ranks are silent."""
        if self.options.supervisor or self.options.attempt is not None:
            return []
        name = stage.stage.name
        logs = [log for log in shown if log.parent == self._paths.logs_dir(name)]
        return explaining_logs(self._paths, name, slices, logs)

    def all_empty_text(self, num_logs: int) -> str:
        """Return that the chosen logs have no text."""
        what = "the log" if num_logs == 1 else "the logs"
        verb = "is" if num_logs == 1 else "are"
        so_far = " so far" if any(stage.status == "running" for stage in self.stages) else ""
        return f"{what} of {self.name} {verb} empty{so_far}"

    def none_failed_text(self, *, so_far: bool = False) -> str:
        """Return that no selected slice failed; of the run if no stage was named."""
        index = self.options.slice_index
        which = "no slice" if index is None else f"no slice {index}"
        names = " or ".join(f"`{stage.stage.name}`" for stage in self.stages)
        of = names if self.is_stage_named else self.run_dir.name
        return f"{which} of {of} has failed so far" if so_far else f"{which} of {of} failed"

    def print_why_none(self) -> None:
        """Print for every selected stage why no log was chosen.

        Raises:
            InputError: some have logs, and none of the rank or attempt that was named.
        """
        options = self.options
        with_others: list[StageStatus] = []
        for stage in self.stages:
            slices = self.slices(stage)
            if self.only is not None and not slices:
                which = "" if options.slice_index is None else f" {options.slice_index}"
                print(f"no slice{which} of `{stage.stage.name}` {self.only}", file=sys.stderr)
            elif (options.rank, options.attempt) != (None, None) and rank_logs(
                self._paths, stage.stage.name, slices
            ):
                with_others.append(stage)
            else:
                print(why_no_log(stage, slices, options.slice_index), file=sys.stderr)
                if are_logs_cleaned(self._paths):
                    print(cleaned_note(self._paths), file=sys.stderr)
        if with_others:
            self.refuse_rank_and_attempt(with_others)

    def refuse_rank_and_attempt(self, stages: Sequence[StageStatus]) -> NoReturn:
        """Raise InputError with the attempts and ranks that the stages have."""
        names = [f"`{stage.stage.name}`" for stage in stages]
        has = f"{names[0]} has no" if len(names) == 1 else f"none of {', '.join(names)} has a"
        attempts: set[int] = set()
        ranks: set[int] = set()
        for stage in stages:
            slices = self.slices(stage)
            known = read_stage_records(self._paths, stage.stage.name).attempts
            attempts.update(n for part in slices for n in known.get(part.slice_index, ()))
            ranks |= ranks_with_logs(self._paths, stage.stage.name, slices)
        known_text = ", ".join(
            f"{word} {ranges_text(sorted(numbers))}"
            for word, numbers in (("attempt", attempts), ("rank", ranks))
            if numbers
        )
        there_is = f"there is {known_text}" if known_text else "it has not begun"
        message = f"{has} log of that rank or attempt; {there_is}"
        raise InputError(message)


_STATUS_CLAUSES: dict[Status, str] = {
    "waiting": "it is waiting",
    "running": "it is running",
    "completed": "it is complete",
    "failed": "it failed",
    "cancelled": "it was cancelled",
    "stranded": "it is stranded",
    "unknown": "its status is unknown",
}


def why_no_log(stage: StageStatus, slices: Sequence[SliceStatus], index: int | None) -> str:
    """Return why a stage, or its slice `index`, has no log."""
    name = f"`{stage.stage.name}`" + ("" if index is None else f" slice {index}")
    status = stage.status if index is None else slices[0].status
    part = next((part for part in slices if part.status == status), slices[0])
    reason = (stage.reason if index is None else "") or part.reason
    yet = " yet" if status in {"waiting", "running"} else ""
    return f"no log of {name}{yet}: {_STATUS_CLAUSES[status]}{f' ({reason})' if reason else ''}"
