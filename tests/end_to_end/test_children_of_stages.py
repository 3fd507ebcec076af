"""A stage ends, and stops when it is asked to, in whatever way it starts processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import end_processes
from tests.end_to_end.driver import Driver, processes_naming, wait_for
from tests.end_to_end.stages_with_children import WAYS

pytestmark = pytest.mark.timeout(1800)  # the first test waits for all stages
STAGES = Path(__file__).with_name("stages_with_children.py")
LIMIT_S = 300.0
"""Time for all stages together, on two cores with eight busy loops."""

LOADS = [0, pytest.param(8, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=LOADS, ids=["idle", "busy"])
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """A user's folder with these stages, on an idle machine or next to busy loops."""
    folder = tmp_path_factory.mktemp("children")
    (folder / "children.py").write_bytes(STAGES.read_bytes())
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(request.param)
    ]
    yield Driver(folder)
    for loop in loops:
        loop.kill()
        loop.wait()
    end_processes(str(folder))


def stopped(driver: Driver, ask: Callable[[Path, str], Any]) -> Path:
    """Run a stage for each way, ask each to stop once it has children, and wait for the end."""
    stages = "".join(
        f"  {way}: {{run: 'children:run', config: {{way: {way}}}, "
        f"resources: {{timeout_min: {LIMIT_S / 60}, signal_lead_s: 0}}}}\n"
        for way in WAYS
    )
    run_dir = driver.submit_stages(f"{stages}")
    for way in WAYS:
        wait_for((run_dir / "data" / way / "at-work-0").exists, f"{way} at work", timeout_s=LIMIT_S)
        ask(run_dir, way)
    driver.wait(run_dir, timeout_s=LIMIT_S)
    return run_dir


def supervisor(run_dir: Path, way: str) -> int:
    """Pid of a stage's supervisor."""
    record = json.loads((run_dir / "attempts" / way / "s00000.a0001.json").read_text())
    pid: int = record["pid"]
    return pid


def ends(run_dir: Path, way: str) -> list[tuple[str, str | None, Any]]:
    """Outcome, request to stop, and result of each attempt of a stage."""
    records = sorted((run_dir / "completions" / way).glob("*.json"))
    read = [json.loads(path.read_text()) for path in records]
    return [(record["outcome"], record["stop_request"], record["result"]) for record in read]


@pytest.fixture(scope="module")
def warned(driver: Driver) -> Path:
    return stopped(driver, lambda run_dir, way: os.kill(supervisor(run_dir, way), signal.SIGUSR2))


@pytest.fixture(scope="module")
def cancelled(driver: Driver) -> Path:
    return stopped(
        driver, lambda run_dir, way: driver.run("cancel", str(run_dir), "--stage", way, "--yes")
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_stage_with_children_stops_and_then_completes(warned: Path, way: str) -> None:
    assert ends(warned, way) == [
        ("stopped", "stop signal", {}),
        ("completed", None, {"sum": 28}),
    ]
    assert processes_naming(str(warned / "tasks" / way)) == []


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_stage_with_children_stops_when_it_is_cancelled(cancelled: Path, way: str) -> None:
    assert ends(cancelled, way) == [("stopped", "sigterm", {})]
