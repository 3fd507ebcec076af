"""Which run a user means."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_jobs.common.errors import InputError


def find_run(text: str | None) -> Path:
    """The run folder that a user means.

    A folder, a run's id or the start of one, a spec's newest run, or (None) the newest run.

    Raises:
        InputError: there is no such run, or several begin so.
    """
    if text is not None:
        path = Path(text)
        if (path / "run.json").is_file():
            return path.absolute()
        if path.suffix in {".yaml", ".yml"} and path.is_file():
            from slurm_jobs.operations import load

            loaded = load(path)
            return _newest(Path(loaded.spec.runs_dir), f"{loaded.spec.name}-")
    runs_dir = Path(os.environ.get("SLURM_JOBS_RUNS_DIR", "runs")).absolute()
    if text is None:
        return _newest(runs_dir, "")
    matches = sorted(path.parent for path in runs_dir.glob(f"{text}*/run.json"))
    if len(matches) == 1:
        return matches[0]
    found = ", ".join(path.name for path in matches[:5]) or "none"
    message = (
        f"no single run `{text}`: it is no run folder, and in {runs_dir} these begin so: {found}. "
        "Name the folder, or set SLURM_JOBS_RUNS_DIR"
    )
    raise InputError(message)


def _newest(runs_dir: Path, prefix: str) -> Path:
    runs = [path.parent for path in runs_dir.glob(f"{prefix}*/run.json")]
    if not runs:
        message = (
            f"no run in {runs_dir}; name a run folder, or set SLURM_JOBS_RUNS_DIR to where runs lie"
        )
        raise InputError(message)
    return max(runs, key=lambda path: (path / "run.json").stat().st_mtime).absolute()
