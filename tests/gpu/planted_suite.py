"""Cases that end in every way, for the tests of the runner."""

from __future__ import annotations

import importlib
import os
import signal
import time

from tests.gpu.suite import Case
from tests.gpu.work import Work


def good(work: Work) -> None:
    """Pass, without one part."""
    work.note(speed=12.5)
    work.check("one is one", passed=True)
    work.not_possible("the other half", "it is not here")


def wrong(work: Work) -> None:
    """Fail a check, and go on."""
    work.check("two is one", passed=False, detail="2")
    work.note(after="yes")


def slow(work: Work) -> None:
    """Miss a goal."""
    work.at_least("speed", 1.0, 2.0)


def lacking(work: Work) -> None:
    """Need a package that does not exist."""
    work.note(before="yes")
    work.need_package("no_such_package")


def importing(_work: Work) -> None:
    """Import a package that does not exist."""
    importlib.import_module("no_such_package.inner")


def importing_ours(_work: Work) -> None:
    """Import a module that this project lacks."""
    importlib.import_module("pipeline.no_such_module")


def raising(_work: Work) -> None:
    """Raise."""
    message = "nothing works\nnot at all"
    raise ValueError(message)


def dying(work: Work) -> None:
    """Be killed after a figure."""
    work.note(reached=1)
    os.kill(os.getpid(), signal.SIGKILL)


def hanging(work: Work) -> None:
    """Never end."""
    work.note(reached=1)
    time.sleep(3600)


def silent(_work: Work) -> None:
    """Write nothing."""


CASES = tuple(
    Case(
        name=function.__name__,
        function=f"tests.gpu.planted_suite:{function.__name__}",
        limit_s=0.4 if function is hanging else 30.0,
        is_alone=function is good,
    )
    for function in (
        hanging,
        good,
        wrong,
        slow,
        lacking,
        importing,
        importing_ours,
        raising,
        dying,
        silent,
    )
)
