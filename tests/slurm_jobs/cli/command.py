"""The command, as `slurm-jobs` in a shell."""

import pytest

from slurm_jobs.cli import main


def run_command(*words: str, code: int = 0) -> None:
    """Run the command in this process, and check the code that it exits with."""
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == code
