"""Line above a log that has how the attempt ended that wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_jobs.cli.run_logs.log_files import attempt_of_log
from slurm_jobs.run.observe import accounting_of, answer_of
from slurm_jobs.run.read_attempts import read_attempts
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_stage_records


def attempt_heads(run_dir: Path, logs: Sequence[Path]) -> dict[Path, str]:
    """Return `attempt 1 of 3 on v1, preempted: ...` for ranks' logs of slices tried again.

    Without such a slice the accounting is not asked.
    """
    by_stage: dict[str, dict[Path, tuple[int, int]]] = {}
    for log in logs:
        attempt = attempt_of_log(log)
        if attempt is not None:
            by_stage.setdefault(log.parent.name, {})[log] = attempt
    heads: dict[Path, str] = {}
    for stage, attempts in by_stage.items():
        records = read_stage_records(RunPaths(run_dir), stage)
        slices = {i for i, _ in attempts.values() if len(records.attempts.get(i, ())) > 1}
        if not slices:
            continue
        entries = read_attempts(
            run_dir,
            stage,
            slices,
            records,
            accounting=accounting_of(run_dir, stage=stage),
            answer=answer_of(run_dir),
        )
        by_attempt = {(entry.slice_index, entry.attempt): entry for entry in entries}
        for log, key in attempts.items():
            entry = by_attempt.get(key)
            if entry is not None:
                num = len(records.attempts[entry.slice_index])
                before = f" (--attempt {key[1] - 1} shows the one before)" if key[1] > 1 else ""
                why = f": {entry.reason}" if entry.reason else ""
                which = f"attempt {key[1]} of {num}{before}"
                heads[log] = f"{which} on {entry.node}, {entry.ending_text}{why}"
    return heads
