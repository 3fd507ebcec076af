"""The report's findings against causes that are planted in real trainings, and against none.

What they found makes up the table of docs/explanation/report-causes.md, which `make
test-slow` writes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from slurm_jobs.report.stage import ask, make_report
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.run_folder.paths import RunPaths
from tests.end_to_end.causes import HEALTHY, PLANTS, SICK, Cause, spec_of
from tests.end_to_end.causes_page import compare
from tests.end_to_end.driver import Driver
from tests.shapes_data import make_shapes

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LOCAL = "scheduler: local\nnode_local_dir: /tmp\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of data sets by name, and the held-out manifest."""
    plain, uneven = (
        make_shapes(tmp_path_factory.mktemp(name), num_train=512, num_heldout=32, length_of=length)
        for name, length in (("plain", lambda _: 0), ("uneven", lambda i: i * i * 7 % 90))
    )
    big = tmp_path_factory.mktemp("disk") / "big"
    big.write_bytes(bytes(1 << 20) * 256)
    return {
        "plain": plain / "consolidate",
        "uneven": uneven / "consolidate",
        "big": big,
        "held_out": plain / "render/heldout.jsonl",
    }


@contextmanager
def busy_processes(num: int) -> Iterator[None]:
    """So many processes, each in a session of its own, that compute while the block runs."""
    with ExitStack() as started:
        for _ in range(num):
            command = [sys.executable, "-c", "while True: pass"]
            process = started.enter_context(subprocess.Popen(command, start_new_session=True))
            started.callback(process.kill)
        yield


@pytest.fixture
def report_of(local: Driver, data: dict[str, Path]) -> Callable[[Cause], RunReport]:
    """Runs a training with a cause planted in it, and makes its report."""

    def make(cause: Cause) -> RunReport:
        local.write("local.yaml", LOCAL)
        with busy_processes(cause.num_busy_processes):
            run_dir = local.submit(str(local.write("planted.yaml", spec_of(cause, data))))
            status = local.wait(run_dir)
        assert status["status"] == "completed", status
        paths = RunPaths(run_dir)
        asked = ask(paths)
        return make_report(paths, asked.accounting, answer=asked.answer)

    return make


@pytest.mark.parametrize("cause", [*HEALTHY, *SICK], ids=lambda cause: cause.name)
def test_what_is_planted_is_found_and_nothing_else(
    report_of: Callable[[Cause], RunReport], cause: Cause
) -> None:
    if cause.needs_link and (why := why_no_link()):
        pytest.skip(why)
    report = report_of(cause)
    if "foreign-load" not in cause.expected and holds_cores(report):
        report = report_of(cause)  # somebody else was at work on this machine: rightly found
    compare(cause.name, report, cause.expected, cause.also)


def why_no_link() -> str:
    """Why this machine makes no network card; nothing where it does."""
    command = [sys.executable, str(PLANTS / "planted_link.py")]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    return "" if made.returncode == 0 else made.stderr.strip() or f"exit code {made.returncode}"


def holds_cores(report: RunReport) -> bool:
    return any(finding.rule_id.startswith("foreign-load") for finding in report.findings)
