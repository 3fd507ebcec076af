"""Lines that the live view shows of a run."""

import io

from rich.console import Console

from slurm_jobs.cli.run_view.live_view import live_view
from slurm_jobs.cli.run_view.run_snapshot import RunView
from tests.slurm_jobs.cli.statuses import NOW_S


def shown(
    found: RunView, width: int = 120, height: int = 40, *, is_over: bool = False
) -> list[str]:
    """The lines that the view puts on a terminal of that size, colours left out."""
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(live_view(found, console, now_unix_s=NOW_S, is_over=is_over))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()
