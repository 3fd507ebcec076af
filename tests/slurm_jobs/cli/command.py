"""The command, as `slurm-jobs` in a shell, but in this process."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from slurm_jobs.cli import main


class Ended(NamedTuple):
    """Exit code, output and errors of a command."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> str:
        """Output of a command that has to end well."""
        assert self.code == 0, self.err
        return self.out


Command = Callable[..., Ended]


def run_command(*words: object, code: int = 0) -> None:
    """Run the command, and check the code that it exits with."""
    with pytest.raises(SystemExit) as ended:
        main.main([*map(str, words)])
    assert ended.value.code == code


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs the command with these words; `code` is the exit code to expect."""

    def run(*words: object, code: int | None = None) -> Ended:
        with pytest.raises(SystemExit) as end:
            main.main([*map(str, words)])
        printed = capsys.readouterr()
        ended = Ended(int(end.value.code or 0), printed.out, printed.err)
        assert code in {None, ended.code}, ended.err
        return ended

    return run
