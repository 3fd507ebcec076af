"""Script at the top of a snapshot, in syntax that every Python version of a stage can parse.

Without `-P`, which Python 3.10 lacks, the script's folder is on `sys.path`, and the script
removes it. It does not do so under `-I` or PYTHONSAFEPATH, or in a child of multiprocessing,
whose `sys.path` is its parent's.
"""

from __future__ import annotations

START_SCRIPT = '''"""Starts slurm-jobs from this snapshot."""

import sys

if sys.version_info < (3, 10):
    sys.exit(
        "slurm-jobs: %s is Python %s, and jobs need 3.10 or newer; name such a one as `python:`"
        % (sys.executable, sys.version.split()[0])
    )
if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

import os  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib.zip"))
sys.dont_write_bytecode = True

from slurm_jobs.worker import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
else:  # a child that multiprocessing started afresh
    from slurm_jobs.worker.code_watch import continue_watch

    continue_watch()
'''
