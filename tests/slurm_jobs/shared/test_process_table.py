"""Entries of real processes: alive, ended and not reaped, reaped."""

import os
import subprocess
import sys

from slurm_jobs.shared.process_table import living_process, process_entry, processes


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
        assert (entry.parent, entry.session) == (os.getpid(), os.getsid(0))
        child.communicate(b"")


def test_this_process_is_among_all() -> None:
    assert os.getpid() in {entry.pid for entry in processes()}
