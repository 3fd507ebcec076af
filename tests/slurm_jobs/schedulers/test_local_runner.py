"""The local runner with real processes; a job's order is a stand-in."""

import ctypes
import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.processes.process_sessions import adopt_orphans
from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers import local_runner
from slurm_jobs.schedulers.local import LocalBook

TASK_S = 0.4


def stand_in_order(spec_dir):
    resources = SimpleNamespace(timeout_min=1, lead_s=0, nodes=1, gpus_per_node=0, mem_gb=None)
    return SimpleNamespace(stage="work", spec_dir=str(spec_dir), resources=resources)


@pytest.fixture
def book(tmp_path, monkeypatch):
    order = stand_in_order(tmp_path)
    monkeypatch.setattr(local_runner, "read_order", lambda _path: order)
    paths = RunPaths(tmp_path)
    paths.run_json.touch()
    paths.logs_dir("work").mkdir(parents=True)
    script = paths.batch_script("t")
    script.parent.mkdir(parents=True)
    script.write_text(f"sleep {TASK_S}\n")
    return LocalBook(paths.local_dir)


def queue(book, *, after=None, slices=None, max_running=None, token="t"):
    dependencies = {"afterok": [after]} if after else {}
    values = {"token": token, "job_name": "j", "num_cpus": 1}
    values |= {"dependencies": dependencies, "max_running": max_running}
    return book.add_job(values, slices)


def run(book, *, max_cpus):
    local_runner.Runner(book.folder.parent, max_cpus=max_cpus).run()


def test_a_task_waits_for_its_parent_and_then_for_room(book):
    """Two cores are free at first: the parent takes one, then one child at a time has room."""
    parent = queue(book)
    children = queue(book, after=parent.job_id, slices=(0, 1))
    run(book, max_cpus=1)
    ended = book.state(parent.job_id).end_unix_s
    first, second = sorted(
        (book.state(task_id) for task_id in children.task_ids), key=lambda t: t.start_unix_s
    )
    for task in (first, second):
        assert task.eligible_unix_s == ended
    assert second.start_unix_s - second.eligible_unix_s >= TASK_S


def test_waiting_for_the_arrays_throttle_is_a_wait_in_the_queue(book):
    job = queue(book, slices=(0, 1), max_running=1)
    run(book, max_cpus=8)
    first, second = (book.state(task_id) for task_id in job.task_ids)
    assert second.submit_unix_s <= second.eligible_unix_s <= first.start_unix_s
    assert second.start_unix_s - second.eligible_unix_s >= TASK_S


def test_a_requeued_task_waits_from_its_requeue_on(book):
    job = queue(book)
    book.request("requeue", job.job_id)
    run(book, max_cpus=1)
    task = book.state(job.job_id)
    assert task.eligible_unix_s - job.submitted_unix_s >= TASK_S
    assert task.start_unix_s >= task.eligible_unix_s == task.submit_unix_s


def test_a_requeued_task_waits_without_the_times_of_its_last_start(book, monkeypatch):
    written = []
    write_state = LocalBook.write_state

    def keep(book, task):
        written.append(task)
        write_state(book, task)

    monkeypatch.setattr(LocalBook, "write_state", keep)
    job = queue(book)
    book.request("requeue", job.job_id)
    run(book, max_cpus=1)
    assert [task.state for task in written] == ["RUNNING", "PENDING", "RUNNING", "COMPLETED"]
    for task in written[1:3]:
        assert (task.end_unix_s, task.exit_code, task.cpu_time_s) == (None, None, None)
    assert written[1].start_unix_s is None


RUNNER = """
from slurm_jobs.schedulers import local_runner
from tests.slurm_jobs.schedulers.test_local_runner import stand_in_order
local_runner.read_order = lambda path: stand_in_order("/")
local_runner.main()
"""
DAEMONS = """
echo $$ >> {pids}
setsid bash -c 'echo $$ >> {pids}; exec sleep 100' &
setsid bash -c 'echo $$ >> {pids}; setsid bash -c "echo \\$\\$ >> {pids}; exec sleep 100" & wait' &
until [ $(wc -l < {pids}) = 4 ]; do sleep 0.01; done
"""


@pytest.mark.parametrize("removal", ["rm -rf {run}", "mv {run} {run}-moved"])
def test_no_process_outlives_the_folder_of_its_run(book, tmp_path, removal):
    """Not even a daemon that left the session of its task."""
    here = list(tmp_path.iterdir())
    folder = tmp_path / "run"
    folder.mkdir()
    for path in here:
        path.rename(folder / path.name)
    pids = tmp_path / "pids"
    RunPaths(folder).batch_script("t").write_text(
        f"{DAEMONS.format(pids=pids)}\n"
        f"until grep -q RUNNING {folder}/local/states/*; do sleep 0.01; done\n"
        f"{removal.format(run=folder)}; sleep 100\n"
    )
    queue(LocalBook(RunPaths(folder).local_dir))
    # In a process of its own, because the runner kills all of its children.
    repository = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", RUNNER, folder, "1"], cwd=repository, check=True)
    living = [pid for pid in pids.read_text().split() if living_process(int(pid))]
    assert living == []
    assert not folder.exists()


@pytest.fixture
def _adopting():
    """The runner's process adopts orphans; this one must stop it after the test."""
    adopt_orphans()
    yield
    ctypes.CDLL(None).prctl(36, 0)  # PR_SET_CHILD_SUBREAPER


BURN = """
import os, time
parent, memory = os.getppid(), bytearray(b"x") * 60_000_000
while time.process_time() < 0.5:
    pass
open("burnt", "w").close()
while os.getppid() == parent:
    time.sleep(0.01)
open("orphaned", "w").close()
"""


@pytest.mark.usefixtures("_adopting")
@pytest.mark.parametrize("lasts", ["less long", "longer"])
def test_processes_whose_parent_was_killed_count_for_their_task(book, lasts):
    folder = book.folder.parent
    (folder / "burn.py").write_text(BURN + ("time.sleep(600)" if lasts == "longer" else ""))
    (folder / "parent.sh").write_text(
        f"{sys.executable} burn.py &\nwhile [ ! -e burnt ]; do sleep 0.05; done; kill -9 $$\n"
    )
    wait = "while [ ! -e orphaned ]; do sleep 0.05; done"
    RunPaths(folder).batch_script("t").write_text(f"bash parent.sh\n{wait}\n")
    job = queue(book)
    run(book, max_cpus=1)
    task = book.state(job.job_id)
    assert task.state == "COMPLETED"
    assert task.cpu_time_s >= 0.5
    assert task.max_rss_bytes >= 60e6


SLOW_TO_CLEAN_UP = """
import os, sys, time
from pathlib import Path
other, event = sys.argv[1:]
if os.fork() == 0:
    os._exit(0)  # stays in the task's session, because its parent does not wait for it
os.setsid()
Path("left").touch()
while Path("/proc", other).exists():
    time.sleep(0.01)
Path(event).touch()
"""


@pytest.mark.usefixtures("_adopting")
@pytest.mark.parametrize(
    ("event", "lead_s"),
    [
        pytest.param("local/requests/cancel-1", 0, id="cancelled"),
        pytest.param("much_later", 30, id="warned of its limit"),
        pytest.param("much_later", 0, id="over its limit"),
    ],
)
def test_a_task_that_ends_while_another_is_cleaned_up_stays_complete(
    book, monkeypatch, event, lead_s
):
    """The younger task is cleaned up until the older has been reaped; then the event comes."""
    folder = book.folder.parent

    def now():
        return time.time() + (100 if (folder / "much_later").exists() else 0)

    clock = SimpleNamespace(time=now, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(local_runner, "time", clock)
    monkeypatch.setattr(local_runner, "_PATIENCE_S", 60.0)
    local_runner.read_order(None).resources.lead_s = lead_s
    (folder / "slow.py").write_text(SLOW_TO_CLEAN_UP)
    younger_script = RunPaths(folder).batch_script("younger")
    younger_script.parent.mkdir(parents=True)
    younger_script.write_text(
        "echo $$ > younger; until [ -s older ]; do sleep 0.01; done\n"
        f"{sys.executable} slow.py $(cat older) {event} &\n"
        "until [ -e left ]; do sleep 0.01; done\n"
    )
    RunPaths(folder).batch_script("t").write_text(
        "echo $$ > older; until [ -s younger ]; do sleep 0.01; done\n"
        "while [ -e /proc/$(cat younger) ]; do sleep 0.01; done\n"
    )
    older, younger = queue(book), queue(book, token="younger")
    run(book, max_cpus=2)
    states = [book.state(job.job_id) for job in (older, younger)]
    assert [(task.state, task.exit_code) for task in states] == [("COMPLETED", 0)] * 2


def test_what_waits_for_no_job_is_eligible_from_its_submission_on(book):
    job = queue(book)
    run(book, max_cpus=1)
    task = book.state(job.job_id)
    assert task.eligible_unix_s == task.submit_unix_s == job.submitted_unix_s


@pytest.mark.parametrize("what", ["folder", "log", "order"])
def test_a_task_that_cannot_be_started_fails_alone_and_says_why(book, monkeypatch, tmp_path, what):
    good = local_runner.read_order(None)
    gone = tmp_path / "gone"
    changed = {"folder": {"spec_dir": str(gone)}, "log": {"stage": "gone"}, "order": {}}[what]

    def read_order(path):
        if path.parent.name == "t":
            return good
        if what == "order":
            raise DamagedFileError(f"{gone} is damaged")
        return SimpleNamespace(**{**vars(good), **changed})

    monkeypatch.setattr(local_runner, "read_order", read_order)
    beside = queue(book)
    bad = queue(book, token="bad")
    below = queue(book, after=bad.job_id)
    later = queue(book, after=beside.job_id)
    run(book, max_cpus=8)
    states = [book.state(job.job_id).state for job in (beside, bad, below, later)]
    assert states == ["COMPLETED", "FAILED", "CANCELLED", "COMPLETED"]
    failed = book.state(bad.job_id)
    assert failed.reason.startswith("it could not be started: ")
    assert "gone" in failed.reason
    assert (failed.start_unix_s, failed.end_unix_s is None) == (None, False)


HOLDS = "x = bytearray(b'x') * {megabytes}_000_000; "


def script_of(book, code):
    """Have a task run Python two processes below its shell."""
    paths = RunPaths(book.folder.parent)
    (paths.run_dir / "task.py").write_text(code)
    paths.batch_script("t").write_text(f"bash -c '{sys.executable} task.py; exit $?'\nexit $?\n")


def with_memory(mem_gb):
    local_runner.read_order(None).resources.mem_gb = mem_gb


def test_a_task_over_its_memory_ends_with_both_numbers_and_the_remedy(book):
    with_memory(0.1)
    script_of(book, HOLDS.format(megabytes=300) + "import signal; signal.pause()")
    job = queue(book)
    below = queue(book, after=job.job_id)
    run(book, max_cpus=2)
    task = book.state(job.job_id)
    assert task.state == "OUT_OF_MEMORY"
    found = re.fullmatch(
        r"out of memory: its processes held (0\.\d\d) GB, and mem_gb allows 0\.1; "
        r"raise resources\.mem_gb",
        task.reason,
    )
    assert found, task.reason
    assert float(found[1]) > 0.1
    assert task.max_rss_bytes > task.requested_mem_bytes
    assert task.reason in RunPaths(book.folder.parent).job_log("work", job.job_id).read_text()
    assert book.state(below.job_id).state == "CANCELLED"


@pytest.mark.parametrize(
    ("gpus", "state"), [pytest.param(0, "FAILED", id="cpu"), pytest.param(1, "COMPLETED", id="gpu")]
)
def test_no_process_of_a_cpu_task_allocates_far_more_than_mem_gb(book, gpus, state):
    with_memory(0.1)
    local_runner.read_order(None).resources.gpus_per_node = gpus
    script_of(book, "x = bytes(8 << 30)  # from calloc: never touched")
    job = queue(book)
    run(book, max_cpus=1)
    assert book.state(job.job_id).state == state
    log = RunPaths(book.folder.parent).job_log("work", job.job_id).read_text()
    assert ("MemoryError" in log) == (state == "FAILED")


def test_a_task_of_several_nodes_has_the_memory_of_all(book):
    with_memory(0.25)
    local_runner.read_order(None).resources.nodes = 2
    script_of(book, HOLDS.format(megabytes=300) + "import time; time.sleep(1.2)")
    job = queue(book)
    run(book, max_cpus=2)
    assert book.state(job.job_id).state == "COMPLETED"


@pytest.mark.parametrize(
    "code",
    [
        HOLDS.format(megabytes=150)
        + "import os, time; [os.fork() for _ in range(2)]; time.sleep(1.2)",
        (
            "import mmap, time; f = open('big', 'w+b'); f.truncate(600_000_000); "
            "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); sum(m[::4096]); time.sleep(1.2)"
        ),
        "import mmap, time; m = mmap.mmap(-1, 4_000_000_000); time.sleep(1.2)",
    ],
    ids=["shared by a fork", "a mapped file", "reserved, not used"],
)
def test_memory_that_is_shared_mapped_or_only_reserved_does_not_count(book, code):
    with_memory(0.25)
    script_of(book, code)
    job = queue(book)
    run(book, max_cpus=2)
    task = book.state(job.job_id)
    assert (task.state, task.reason) == ("COMPLETED", "")


def test_a_disk_that_fails_ends_the_runner_with_one_line_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_runner: local_runner.Runner) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/r/local/1.json")

    monkeypatch.setattr(local_runner.Runner, "run", fail)
    monkeypatch.setattr("sys.argv", ["runner", str(tmp_path), "1"])
    LocalBook(RunPaths(tmp_path).local_dir).create()
    with pytest.raises(SystemExit) as ended:
        local_runner.main()
    assert ended.value.code == (
        "slurm-jobs: the local runner ends: /r/local/1.json: No space left on device; free space "
        "on its file system"
    )
