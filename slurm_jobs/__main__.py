"""`python -m slurm_jobs` is the command `slurm-jobs`.

It loads nothing before it can be interrupted: a Ctrl-C while the rest is being loaded, seconds on a
slow home file system, ends with exit code 130 and one line, as it does later.
"""

import sys


def main() -> None:
    """Run the command; see `slurm_jobs.cli`."""
    try:
        from slurm_jobs.cli import main as command

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
    """An impatient second Ctrl-C would have Python show where it was as it ends."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
