"""A site's squeue that answers from a cache, in front of the real one on the user's PATH."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.schedulers.job_rows import SQUEUE_FORMAT
from tests.end_to_end.driver import COMMAND, Driver

_CACHED = """\
#!/bin/bash
# The names in `--name A,B` are those of the jobs that are printed.
while test $# -gt 0; do test "$1" = --name && names=$2; shift; done
if test -z "$names"; then exec cat "{folder}/queue"; fi
head -n 1 "{folder}/names"
tail -n +2 "{folder}/names" | grep -F "${{names//,/$'\\n'}}"
exit 0
"""
_NO_ACCOUNTS = """\
#!/bin/bash
echo "Slurm accounting storage is disabled" >&2
exit 1
"""
_REFRESHER = """\
while true; do
  for part in "queue {queue}" "names %i|%T|%N|%j"; do
    squeue --all --states=all --array -o "${{part#* }}" > "{folder}/new" &&
      mv "{folder}/new" "{folder}/${{part%% *}}"
  done
  sleep {every_s}
done
"""


@dataclass(frozen=True)
class StaleSqueue:
    """A user's folder whose `slurm-jobs` finds a cached squeue first."""

    driver: Driver
    cache: Path

    def refresh(self) -> None:
        """Bring the cache up to date once."""
        cluster = self.driver.cluster
        assert cluster is not None
        for name, layout in (("queue", SQUEUE_FORMAT), ("names", "%i|%T|%N|%j")):
            argv = ["squeue", "--all", "--states=all", "--array", "-o", layout]
            (self.cache / name).write_text(cluster.run_as_user(argv).stdout)

    @contextmanager
    def refreshed_every(self, seconds: float) -> Iterator[None]:
        """Bring the cache up to date now, and then every so many seconds."""
        cluster = self.driver.cluster
        assert cluster is not None
        script = _REFRESHER.format(folder=self.cache, queue=SQUEUE_FORMAT, every_s=seconds)
        with subprocess.Popen(
            cluster.as_user(["bash", "-c", script]), env=cluster.env(), start_new_session=True
        ) as refresher:
            try:
                yield
            finally:
                refresher.kill()


def with_stale_squeue(on_slurm: Driver, *, accounts: bool) -> StaleSqueue:
    """The same folder, with the queue as it is now in the cache."""
    assert on_slurm.cluster is not None
    cache = on_slurm.cluster.work_dir("cache")
    on_slurm.write("bin/squeue", _CACHED.format(folder=cache)).chmod(0o755)
    if not accounts:
        on_slurm.write("bin/sacct", _NO_ACCOUNTS).chmod(0o755)
    path = f"{on_slurm.folder}/bin:{on_slurm.cluster.env()['PATH']}"
    stale = StaleSqueue(replace(on_slurm, command=("env", f"PATH={path}", *COMMAND)), cache)
    stale.refresh()
    return stale
