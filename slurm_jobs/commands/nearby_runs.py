"""A run near the working folder, for the message that the folder of runs has none."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.run_folder.paths import age_key, is_run


def nearby_run(here: Path) -> Path | None:
    """Return a run that a user in the folder `here` probably means; None if there is none.

    The first of: the run that `here` is in, the newest run in `here`, and the newest in `runs` of
    it or of a folder above. Other folders are not listed: `/home` may mount each of its entries.
    """
    above = (here, *here.parents)
    run = next(filter(_is_run, above), None)
    for place in (here, *(folder / "runs" for folder in above)):
        run = run or _newest_in(place)
    return run


def _newest_in(folder: Path) -> Path | None:
    try:
        return max(filter(is_run, folder.iterdir()), key=age_key, default=None)
    except OSError:
        return None


def _is_run(folder: Path) -> bool:
    try:
        return is_run(folder)
    except OSError:
        return False
