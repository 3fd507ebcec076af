"""Fixtures for every test: the Slurm test cluster, started on first use.

A test that needs it is marked `cluster` and takes the fixture of that name. Where the machine
cannot have a cluster the test is skipped with the reason; with CI or SLURM_JOBS_REQUIRE_CLUSTER
set, it fails. SLURM_JOBS_CLUSTER=FOLDER uses a cluster that was brought up by hand.

`make test` runs the files on several processes at once (pytest-xdist); all files with tests that
need the cluster run on one of them, first, so that there is one cluster, installed once. `make
test-faults` has a cluster for each process: its tests wait more than they compute.
"""

import compileall
import fcntl
import functools
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Before torch is loaded, here and in processes that tests start. By default its threads spin while
# they wait for each other, so that several test processes on few cores take these from one another:
# one file of models took 70 s of CPU time instead of 15 on two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Test modules import `tests.cluster`; import mode "importlib" puts nothing on the path by itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError, ClusterUnavailableError
from tests.cluster.lifecycle import clear_away
from tests.cluster.processes import identify, parent

# Hypothesis also draws what it finds in the source of the modules that are loaded at the time, so
# that its examples would depend on the tests that ran before. It has no setting against that.
providers._get_local_constants = providers.Constants

_FOLDERS = Path("/var/tmp")
_PREFIX = "slurm-jobs-pytest-"
_OWNED = re.compile(rf"{_PREFIX}(\d+)(?:-(\d+))?")
"""Process and its start; a folder of an older version has the process alone."""
_TOGETHER = ("tests/pipeline/train/strategies/", "tests/pipeline/train/trials/")
"""Folders whose files share what takes long to make."""
_TOGETHER_LIMIT_S = 1200
"""Time limit of their tests. The first of them waits for what all share, which took 200 s on a slow
machine and over 600 s beside three other suites; its own limit is 900 s."""


_SLOW_LIMIT_S = 3600
"""Time limit of a slow test; `timeout` in pyproject.toml is that of the others."""
_ROUND = re.compile(r"-\d+\]$")
"""In the name of a fault's test; the page counts all rounds of a fault in one process."""


class _FilesAtOnce(LoadScopeScheduling):
    """A file's tests run on one process; those of the cluster all on the same, and of a folder.

    Faults alone are dealt out one by one.
    """

    def _split_scope(self, nodeid: str) -> str:
        if _is_of_faults(self.config):
            return _ROUND.sub("", nodeid)
        file = nodeid.split("::", 1)[0]
        if _needs_cluster(self.config.rootpath / file):
            return "cluster"
        return next((folder for folder in _TOGETHER if file.startswith(folder)), file)


def _is_of_faults(config: pytest.Config) -> bool:
    """Whether this is `make test-faults`."""
    return bool(config.getoption("markexpr") == "faults")


@functools.cache
def _needs_cluster(file: Path) -> bool:
    """Whether a test of the file is marked so.

    Marks do not reach the process that deals the files out: groups of pytest-xdist 3.8 are part
    of a test's name, which pytest 9.2 no longer lets it change.
    """
    return "pytest.mark.cluster" in file.read_text(encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the packages, as pip does where it installs: hundreds of processes import them.

    Some machines forbid Python to keep what it compiles (PYTHONDONTWRITEBYTECODE).
    """
    if not hasattr(config, "workerinput"):
        for package in ("slurm_jobs", "pipeline"):
            compileall.compile_dir(config.rootpath / package, quiet=1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Any:
    """Called by pytest-xdist, with `make test` alone."""
    return _FilesAtOnce(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that take long their time limit; on several processes, begin with the cluster's.

    These take the longest. Otherwise the order stays, which `--random-order` may have chosen.
    """
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_LIMIT_S))
        elif item.nodeid.startswith(_TOGETHER):
            item.add_marker(pytest.mark.timeout(_TOGETHER_LIMIT_S))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not _needs_cluster(item.path))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Slurm with six nodes, for the whole session."""
    given = os.environ.get("SLURM_JOBS_CLUSTER")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        # What is said here (packages are installed) belongs on the screen, not into a report.
        several = _is_of_faults(request.config)
        with capture.global_and_fixture_disabled():
            started = Cluster.attach(Path(given)) if given else _start(several=several)
    except ClusterUnavailableError as error:
        if os.environ.get("CI") == "true" or os.environ.get("SLURM_JOBS_REQUIRE_CLUSTER"):
            pytest.fail(f"the Slurm test cluster is required: {error}", pytrace=False)
        pytest.skip(f"no Slurm test cluster: {error}")
    yield started
    if not given:
        with _turn():
            started.down()


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_heard() -> None:
    """Tests in the background (`make test &`) inherit that SIGINT is ignored, and pass it on.

    And a test run that is told to end, as by a time limit, takes its cluster down.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _state_of_all_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The command remembers folders of runs in the home, where the developer's own are."""
    folder = tmp_path_factory.mktemp("state")
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    yield folder
    os.environ.pop("XDG_STATE_HOME")
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(autouse=True)
def _state_of_a_test(_state_of_all_tests: Path) -> Iterator[None]:
    """No test finds the runs of another one; the folder is made on its first use."""
    os.environ["XDG_STATE_HOME"] = f"{_state_of_all_tests}/{os.urandom(6).hex()}"
    yield
    os.environ["XDG_STATE_HOME"] = str(_state_of_all_tests)


@pytest.fixture(autouse=True)
def _signals_as_found() -> Iterator[None]:
    """Later tests and the processes that they fork would inherit a handler that is left behind."""
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    if signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
        del found[signal.SIGALRM]  # pytest-timeout removes its own where a test fails
    left = [number for number, handler in found.items() if signal.getsignal(number) != handler]
    for number in left:
        signal.signal(number, found[number])
    left += signal.pthread_sigmask(signal.SIG_SETMASK, blocked) ^ blocked
    if left:
        names = ", ".join(map(_signal_name, left))
        pytest.fail(f"this test does not restore the handler or the mask of {names}", pytrace=False)


def _signal_name(number: int) -> str:
    return number.name if isinstance(number, signal.Signals) else f"signal {number}"


@pytest.fixture(autouse=True)
def _umask_as_found() -> Iterator[None]:
    """The command sets its own for good, which in a test is the process of all tests."""
    found = os.umask(0o022)
    os.umask(found)
    yield
    os.umask(found)


@pytest.fixture(autouse=True)
def _cluster_as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """What one test breaks or leaves in the queue, the next one does not see."""
    yield
    if "cluster" in request.fixturenames and request.node.get_closest_marker("cluster"):
        request.getfixturevalue("cluster").heal()


@pytest.fixture
def user_dir(cluster: Cluster) -> Path:
    """A new folder of the ordinary user who submits jobs; it lives as long as the cluster."""
    return cluster.work_dir()


def _start(*, several: bool) -> Cluster:
    """`several`: other processes of this test run have clusters of their own."""
    with _turn():
        _clear_away_what_killed_runs_left(several=several)
        own = identify(os.getpid())
        assert own is not None
        return Cluster.up(_FOLDERS / f"{_PREFIX}{own.pid}-{own.start_ticks}")


@contextmanager
def _turn() -> Iterator[None]:
    """One process at a time: clusters share users, /etc/hosts and the packages' installation."""
    turn = os.open(_FOLDERS, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turn)


def _clear_away_what_killed_runs_left(*, several: bool = False) -> None:
    """What is not a folder of this user's own is left alone."""
    for folder in sorted(_FOLDERS.iterdir()):
        owned = _OWNED.fullmatch(folder.name)
        if owned is None or not _is_own_folder(folder):
            continue
        owner = identify(int(owned[1]))
        if owner is None or owned[2] not in {None, str(owner.start_ticks)}:
            clear_away(folder)
        elif several:
            continue
        elif "PYTEST_XDIST_WORKER" in os.environ and parent(owner.pid) == os.getppid():
            name = _FilesAtOnce.__name__
            message = f"two processes of one test run start a cluster: see {name}"
            raise ClusterError(message)


def _is_own_folder(path: Path) -> bool:
    """No link, whatever it leads to."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
