"""Entry point of the command `slurm-jobs` and of `python -m slurm_jobs`.

It imports nothing before Ctrl-C is handled: an interrupt while the rest loads, which takes seconds
on a slow home file system, also ends with exit code 130 and one line.
"""

import gc
import sys


def main() -> None:
    """Run the command; see `slurm_jobs.cli.main`."""
    # Imports make many objects and no garbage: searching them for cycles took 6 % of `check`.
    gc.set_threshold(100_000)
    try:
        from slurm_jobs.cli.main import main as command

        command()
    except KeyboardInterrupt:
        _ignore_more()
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:
            _ignore_more()
        raise


def _ignore_more() -> None:
    """Ignore a second Ctrl-C, for which Python would print a traceback while it exits."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
