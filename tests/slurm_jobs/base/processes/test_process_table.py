"""Entries of real processes: alive, ended and not reaped, reaped."""

import os
import subprocess
import sys

from slurm_jobs.base.processes.process_table import (
    descendants,
    living_process,
    process_entry,
    processes,
)


def test_a_process_lives_until_it_ends_and_is_listed_until_reaped() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        alive = living_process(child.pid)
        assert alive is not None
        assert (alive.pid, alive.parent, alive.num_threads) == (child.pid, os.getpid(), 1)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert living_process(child.pid) is None
        ended = process_entry(child.pid)
        assert ended is not None
        assert (ended.has_ended, ended.start_ticks) == (True, alive.start_ticks)
        child.wait()
        assert process_entry(child.pid) is None


def test_a_name_with_brackets_and_line_breaks_is_read() -> None:
    code = "import sys; open('/proc/self/comm', 'w').write('a) Z\\n(b'); print(); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        entry = living_process(child.pid)
        assert entry is not None
        assert entry.parent == os.getpid()
        child.communicate(b"")


def test_this_process_is_among_all() -> None:
    assert os.getpid() in {entry.pid for entry in processes()}


def test_descendants_have_the_processor_time_of_children_that_ended() -> None:
    work = "import time\nwhile time.process_time() < 0.1: pass"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); "
        "sleep = subprocess.Popen(['sleep', '600']); print(sleep.pid, flush=True); "
        "sys.stdin.read(); sleep.kill()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        sleep_pid = int(child.stdout.readline())
        entries = {entry.pid: entry for entry in descendants(os.getpid())}
        assert {child.pid, sleep_pid} <= entries.keys()
        assert os.getpid() not in entries
        assert entries[child.pid].cpu_ticks >= 0.1 * os.sysconf("SC_CLK_TCK")
        assert entries[sleep_pid].cpu_ticks < entries[child.pid].cpu_ticks
        child.communicate(b"")
