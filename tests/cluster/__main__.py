"""`python -m tests.cluster up|down|status|shell|run`: the test cluster by hand, as root."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster import lifecycle
from tests.cluster.cluster import Cluster
from tests.cluster.config import NODES
from tests.cluster.daemons import STOP_ORDER, running
from tests.cluster.errors import ClusterError


def main() -> int:
    """Parse, act, and print errors without a traceback."""
    args = _parser().parse_args()
    try:
        return args.act(args)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--folder", type=Path, default=lifecycle.DEFAULT_FOLDER)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    up = verbs.add_parser("up", help="start it, on an empty database")
    up.add_argument("--max-array-size", type=int, default=1001)
    up.add_argument("--grace-time-s", type=int, default=10)
    up.set_defaults(act=_up)
    verbs.add_parser("down", help="stop it and remove all it left").set_defaults(act=_down)
    verbs.add_parser("status", help="its daemons and nodes").set_defaults(act=_status)
    verbs.add_parser("shell", help="a shell as the user who submits jobs").set_defaults(act=_shell)
    run = verbs.add_parser("run", help="a command as that user, in the current folder")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    run.set_defaults(act=_run)
    return parser


def _up(args: argparse.Namespace) -> int:
    start = time.monotonic()
    folder = args.folder.absolute()
    cluster = Cluster.up(folder, max_array_size=args.max_array_size, grace_time_s=args.grace_time_s)
    python = os.path.relpath(sys.executable)
    option = "" if folder == lifecycle.DEFAULT_FOLDER else f" --folder {folder}"
    print(f"""\
The cluster is up ({time.monotonic() - start:.1f} s). Nodes: {", ".join(NODES)}.
Partitions: cpu, gpu, and low, which high preempts.

  export SLURM_CONF={cluster.config.slurm_conf}
  sinfo                                    as anybody, once that is exported
  {python} -m tests.cluster{option} run srun -p gpu --gpus-per-node=v100:1 env
  {python} -m tests.cluster{option} shell    as {cluster.config.user}, who submits the jobs
  {python} -m tests.cluster{option} down

Jobs belong to {cluster.config.user}, never to root; a folder for their files:
{cluster.config.home}
""")
    return 0


def _down(args: argparse.Namespace) -> int:
    folder = args.folder.absolute()
    if lifecycle.bring_down(folder):
        print(f"The cluster is down, and {folder} is removed.")
    else:
        print(f"There was no cluster in {folder}.")
    return 0


def _status(args: argparse.Namespace) -> int:
    cluster = Cluster.attach(args.folder.absolute())
    for name in reversed(STOP_ORDER):
        process = running(cluster.config, name)
        print(f"{name:12} {f'running, pid {process.pid}' if process else 'not running'}")
    if not cluster.is_up():
        return 1
    print(cluster.run_as_user(["sinfo"]).stdout, end="")
    return 0


def _shell(args: argparse.Namespace) -> int:
    cluster = Cluster.attach(args.folder.absolute())
    return _in_terminal(cluster, ["/bin/bash", "--norc"], cluster.config.home)


def _run(args: argparse.Namespace) -> int:
    return _in_terminal(Cluster.attach(args.folder.absolute()), args.argv, Path.cwd())


def _in_terminal(cluster: Cluster, argv: list[str], cwd: Path) -> int:
    env = {**cluster.env(), "TERM": os.environ.get("TERM", "dumb")}
    return subprocess.run(cluster.as_user(argv), env=env, cwd=cwd, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
