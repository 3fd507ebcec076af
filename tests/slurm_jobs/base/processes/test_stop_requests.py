"""A stop signal sets the flag of a stage, whose own handler is called as well."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

from slurm_jobs.base.files import read_json
from slurm_jobs.worker.rank import exit_path, result_path
from tests.contexts import make_context
from tests.end_to_end.driver import wait_for
from tests.slurm_jobs.worker.orders import start_keeper

START = "import sys\nfrom slurm_jobs.worker import main\nmain(sys.argv[1:])\n"
STAGE = """
import signal, time
from slurm_jobs.base.processes.stop_requests import stop_requested

def run(config, context):
    got = []
    signal.signal(signal.SIGUSR2, lambda number, _: got.append(number))
    (context.output_dir / "ready").touch()
    while not (got and stop_requested()):
        time.sleep(0.02)
    return {"got": [int(number) for number in got]}
"""


def test_a_functions_own_stop_handler_is_called_and_the_flag_is_set(
    tmp_path: Path,
) -> None:
    (tmp_path / "start.py").write_text(START)
    (tmp_path / "own.py").write_text(STAGE)
    context = dataclasses.replace(make_context("s", tmp_path / "run"), node_local_dir=tmp_path)
    root = str(Path(__file__).resolve().parents[4])
    keeper = start_keeper(
        context,
        {"start_script": str(tmp_path / "start.py")},
        PYTHONPATH=f"{root}:{tmp_path}",
        SLURM_JOBS_ENTRY_POINT="own:run",
    )
    try:
        wait_for((context.output_dir / "ready").exists, "the function")
        keeper.send_signal(signal.SIGUSR2)
        assert keeper.wait(60) == 0
    finally:
        keeper.kill()
        keeper.wait()
    assert read_json(result_path(context.task_dir, 0)) == {"got": [signal.SIGUSR2]}
    assert read_json(exit_path(context.task_dir, 0))["asked"]
