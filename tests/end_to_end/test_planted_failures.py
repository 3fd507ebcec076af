"""Failures of every kind on a real Slurm: their kind, the rank that failed first, its words, and
the resume that is offered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_jobs.base.failure_kinds import FailureKind
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.run.observe import status_of
from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, stage_of

pytestmark = pytest.mark.cluster

FUNCTIONS = Path(__file__).with_name("failing_stages.py")
NEW_CODE, NEW_SPEC = "--update-code", "--update-spec"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A stage that fails, and what is said of it."""

    kind: FailureKind
    words: str
    """Part of the reason."""
    resume: str = ""
    """Options of the first resume that is offered."""
    how: str = ""
    """Function, or a shell command if `shell`."""
    shell: str = ""
    rank: int | None = None
    """Rank that fails, of two; None: the only one."""
    peers: str = "asleep"

    def stage(self) -> dict[str, Any]:
        """Return the stage of the spec."""
        values: dict[str, Any] = {"resources": {"timeout_min": 10, "cpus_per_task": 1}}
        if self.rank is not None:
            values["resources"]["nodes"] = 2
        if self.shell:
            return {**values, "shell": self.shell}
        config = {"how": self.how, "rank": self.rank, "peers": self.peers}
        return {**values, "run": "failing_stages:run", "config": config}


def of_function(
    how: str,
    kind: FailureKind,
    words: str,
    resume: str = "",
    *,
    rank: int | None = None,
    peers: str = "asleep",
) -> Planted:
    return Planted(how=how, kind=kind, words=words, resume=resume, rank=rank, peers=peers)


def of_command(shell: str, kind: FailureKind, words: str, resume: str = "") -> Planted:
    return Planted(shell=shell, kind=kind, words=words, resume=resume)


SHARE = "--set stages.refused_rows.config.max_share=0.25"
IN_COLLECTIVE = "in a collective"
PLANTED = {
    "no_number": of_function("no_number", "exception", "ValueError: invalid literal"),
    "no_key": of_function("no_key", "exception", "KeyError: 'image'"),
    "no_name": of_function("no_name", "wrong code", "NameError: name 'missing_name'", NEW_CODE),
    "no_argument": of_function("no_argument", "wrong code", "TypeError: dumps()", NEW_CODE),
    "no_attribute": of_function("no_attribute", "wrong code", "AttributeError: ", NEW_CODE),
    "no_syntax": of_function("no_syntax", "wrong code", "SyntaxError: invalid syntax", NEW_CODE),
    "no_package": of_function("no_package", "missing package", "'no_such_package'", NEW_CODE),
    "no_json": of_function("no_json", "wrong code", "is not valid JSON", NEW_CODE),
    "no_mapping": of_function("no_mapping", "wrong code", "it returned list", NEW_CODE),
    "no_output": of_function("no_output", "wrong code", "no file of this name", NEW_CODE),
    "refused_config": of_function("refused_config", "wrong config", "no multiple of 2", NEW_SPEC),
    "refused_data": of_function("refused_data", "wrong data", "m.csv:3: a quote"),
    "refused_rows": of_function("refused_rows", "wrong data", "5 of 20 rows", SHARE),
    "refused_code": of_function("refused_code", "wrong code", "knows no such task", NEW_CODE),
    "may_work_later": of_function("may_work_later", "exception", "StageError: the server"),
    "host_memory": of_function("host_memory", "host memory", "MemoryError: "),
    "device_memory": of_function("device_memory", "device memory", "CUDA out of memory", NEW_SPEC),
    "full_disk": of_function("full_disk", "full disk", "No space left on device"),
    "deep": of_function("deep", "exception", "RecursionError: maximum recursion"),
    "leaves": of_function("leaves", "exit code", "exit code 3; its log ends with: cannot open"),
    "leaves_well": of_function("leaves_well", "exit code", "before its function returned"),
    "leaves_at_once": of_function("leaves_at_once", "exit code", "ended with exit code 5"),
    "unasked_stop": of_function("unasked_stop", "exit code", "and was not asked to stop"),
    "killed": of_function("killed", "killed", "was killed by SIGKILL"),
    "crashes": of_function("crashes", "killed", "was killed by SIGSEGV"),
    "aborts": of_function("aborts", "killed", "was killed by SIGABRT"),
    "without_keeper": of_function("without_keeper", "gone", "ended without a record"),
    "command_fails": of_command("echo 'quota exceeded' >&2; exit 4", "exit code", "quota exceeded"),
    "command_false": of_command("false", "exit code", "ended with exit code 1"),
    "no_command": of_command("no-such-command", "missing command", "exit code 127", NEW_SPEC),
    "no_program": of_command("/etc", "missing command", "exit code 126", NEW_SPEC),
    "command_killed": of_command("kill -KILL $$", "killed", "was killed by SIGKILL"),
    "command_ended": of_command("kill -TERM $$", "killed", "was killed by SIGTERM"),
    "number_of_1": of_function("no_number", "exception", "ValueError: invalid", rank=1),
    "name_of_0": of_function("no_name", "wrong code", "NameError: ", NEW_CODE, rank=0),
    "data_of_1": of_function("refused_data", "wrong data", "a quote is not closed", rank=1),
    "kill_of_1": of_function("killed", "killed", "was killed by SIGKILL", rank=1),
    "crash_of_0": of_function("crashes", "killed", "was killed by SIGSEGV", rank=0),
    "exit_of_1": of_function("leaves_at_once", "exit code", "ended with exit code 5", rank=1),
    "number_in_collective": of_function(
        "no_number", "exception", "ValueError: invalid", rank=1, peers=IN_COLLECTIVE
    ),
    "name_in_collective": of_function(
        "no_name", "wrong code", "NameError: ", NEW_CODE, rank=0, peers=IN_COLLECTIVE
    ),
    "data_in_collective": of_function(
        "refused_data", "wrong data", "a quote is not closed", rank=1, peers=IN_COLLECTIVE
    ),
    "kill_in_collective": of_function(
        "killed", "killed", "was killed by SIGKILL", rank=1, peers=IN_COLLECTIVE
    ),
    "crash_in_collective": of_function(
        "crashes", "killed", "was killed by SIGSEGV", rank=0, peers=IN_COLLECTIVE
    ),
}
SAID_OF_OTHERS = ("Connection closed", "Connection reset", "wait timeout")


@pytest.fixture(scope="module")
def failed_run(cluster: Cluster) -> tuple[Driver, Path]:
    """A run of which every stage has failed."""
    driver = Driver(cluster.work_dir("planted"), cluster)
    driver.write("failing_stages.py", FUNCTIONS.read_text())
    stages = {name: planted.stage() for name, planted in PLANTED.items()}
    run_dir = driver.submit_text(yaml.safe_dump({"name": "planted", "stages": stages}))
    driver.wait(run_dir, timeout_s=540.0)
    return driver, run_dir


@pytest.fixture(scope="module")
def status(failed_run: tuple[Driver, Path]) -> Any:
    driver, run_dir = failed_run
    return driver.status(run_dir)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_kind_rank_and_words_are_those_of_the_first_failure(status: Any, name: str) -> None:
    planted = PLANTED[name]
    (part,) = stage_of(status, name)["slices"]
    assert part["status"] == "failed"
    assert (part["kind"], part["rank"]) == (planted.kind, planted.rank or 0)
    assert planted.words in part["reason"]
    assert not any(words in part["reason"] for words in SAID_OF_OTHERS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_the_resume_that_is_offered_fits_the_kind(
    failed_run: tuple[Driver, Path], name: str
) -> None:
    _, run_dir = failed_run
    whole = status_of(run_dir, fresh=False)
    lines = problem_lines(run_dir, replace(whole, stages=(whole.stage(name),)))
    (offered,) = [line for line in lines if line.startswith("then: ")]
    options = PLANTED[name].resume.split()
    assert offered == f"then: {command_text('resume', str(run_dir), *options)}"
