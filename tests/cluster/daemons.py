"""Start the daemons in the order in which they need each other, and wait until each is ready.

Ready means that the daemon answers, never that a while has passed.
"""

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.cluster import config as render
from tests.cluster.config import NODES, ClusterConfig
from tests.cluster.errors import ClusterError
from tests.cluster.packages import SEARCH_PATH, program
from tests.cluster.processes import (
    MARK,
    Process,
    identify,
    read_pid_file,
    spawn,
    stop,
    write_pid_file,
)

# Those that need a daemon stop before it.
SLURMDS = tuple(f"slurmd-{node}" for node in NODES)
STOP_ORDER = (*SLURMDS, "slurmctld", "slurmdbd", "mariadb", "munged")
_READY_TIMEOUT_S = 30.0
_POLL_S = 0.05


def daemon_env(config: ClusterConfig) -> dict[str, str]:
    """Return the whole environment of a daemon: nothing of the caller's leaks into jobs."""
    return {
        "PATH": SEARCH_PATH,
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(config.slurm_conf),
        MARK: str(config.folder),
    }


def write_files(config: ClusterConfig) -> None:
    """Write every configuration file and make the folders that the daemons expect."""
    for folder in (config.etc, config.logs, config.run, config.devices, config.work):
        folder.mkdir(mode=0o755)
    for folder in (config.state, config.spool):
        folder.mkdir(mode=0o755)
    for node in NODES:
        (config.spool / node).mkdir(mode=0o755)
    config.slurm_conf.write_text(render.render_slurm_conf(config))
    (config.etc / "gres.conf").write_text(render.render_gres_conf(config))
    config.my_cnf.write_text(render.render_my_cnf(config))
    for name, text in (
        ("slurmdbd.conf", render.render_slurmdbd_conf(config)),
        ("init.sql", render.render_init_sql(config)),
    ):
        _write_private(config.etc / name, text.encode())
    _write_private(config.munge_key, secrets.token_bytes(128))


def _write_private(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)


def command_of(config: ClusterConfig, name: str) -> list[str]:
    """Return the command line of one daemon, in the foreground."""
    if name == "munged":
        return [
            program("munged"),
            "--foreground",
            "--force",
            f"--socket={config.munge_socket}",
            f"--key-file={config.munge_key}",
            f"--pid-file={config.run}/munged.pid",
            f"--seed-file={config.run}/munged.seed",
            f"--log-file={config.logs}/munged.log",
        ]
    if name == "mariadb":
        # As root: the datadir then needs no other owner, and the folder no other user's access.
        return [
            program("mariadbd"),
            f"--defaults-file={config.my_cnf}",
            "--user=root",
            f"--init-file={config.init_sql}",
        ]
    if name.startswith("slurmd-"):
        return [program("slurmd"), "-D", "-N", name.removeprefix("slurmd-")]
    return [program(name), "-D"]


def pid_file(config: ClusterConfig, name: str) -> Path:
    """Return our own pid file of a daemon; it names the start time too."""
    return config.run / f"{name}.process"


def running(config: ClusterConfig, name: str) -> Process | None:
    """Return the daemon's process, or None if it is not running."""
    return read_pid_file(pid_file(config, name))


def start(config: ClusterConfig, name: str) -> None:
    """Start one daemon, if it is not running already. Does not wait until it is ready."""
    if running(config, name) is not None:
        return
    log = config.logs / f"{name}.out"
    child = spawn(command_of(config, name), env=daemon_env(config), log=log)
    process = identify(child.pid)
    # Handed over to the pid file: the daemon outlives this process, and Popen must not complain.
    child.returncode = 0
    if process is None:
        raise ClusterError(f"{name} ended at once\n{log_tails(config, [name])}")
    write_pid_file(pid_file(config, name), process)


def stop_daemons(config: ClusterConfig, names: Sequence[str], *, grace_s: float = 10.0) -> None:
    """Stop daemons, each group after those that need it."""
    for name in names:
        process = running(config, name)
        if process is not None:
            stop([process], grace_s=grace_s)
        pid_file(config, name).unlink(missing_ok=True)


def wait_ready(config: ClusterConfig, name: str, lacking: Callable[[], str]) -> None:
    """Poll until the daemon lacks nothing.

    Args:
        config: The cluster.
        name: The daemon.
        lacking: Returns what is not ready yet, or "".

    Raises:
        ClusterError: it ended, or is not ready in time; with the tails of its logs.
    """
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while lack := lacking():
        if running(config, name) is None:
            raise ClusterError(f"{name} ended while starting\n{log_tails(config, [name])}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{name} is not ready after {_READY_TIMEOUT_S:.0f} s: {lack}\n"
                f"{log_tails(config, [name])}"
            )
        time.sleep(_POLL_S)


def wait_daemon(config: ClusterConfig, name: str) -> None:
    """Wait until a started daemon does its work."""
    probes: dict[str, Callable[[], str]] = {
        "munged": lambda: "" if config.munge_socket.exists() else "no socket",
        "mariadb": lambda: _no_listener(config.db_port),
        "slurmdbd": lambda: _refusal(config, ["sacctmgr", "--noheader", "show", "cluster"]),
        "slurmctld": lambda: _refusal(config, ["scontrol", "ping"]),
    }
    wait_ready(config, name, probes.get(name) or partial(_node_lack, config, name))


def _node_lack(config: ClusterConfig, name: str) -> str:
    node = name.removeprefix("slurmd-")
    state = node_state(config, node)
    if state[0] == "UNKNOWN" or "NOT_RESPONDING" in state:
        return "+".join(state)
    return _no_listener(config.slurmd_port(node))


def _no_listener(port: int) -> str:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError as error:
        return f"port {port}: {error}"
    return ""


def _refusal(config: ClusterConfig, argv: Sequence[str]) -> str:
    done = slurm_command(config, argv)
    return "" if done.returncode == 0 else f"{argv[0]} says {done.stdout}{done.stderr}"


def slurm_command(config: ClusterConfig, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a Slurm client as root, for administration only."""
    return subprocess.run(
        [program(argv[0]), *argv[1:]],
        env=daemon_env(config),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def node_state(config: ClusterConfig, node: str) -> list[str]:
    """Return a node's state and its flags, e.g. ["IDLE"] or ["DOWN", "NOT_RESPONDING"]."""
    shown = slurm_command(config, ["scontrol", "show", "node", node, "--oneliner"]).stdout
    words = [word for word in shown.split() if word.startswith("State=")]
    return words[0].removeprefix("State=").split("+") if words else ["UNKNOWN", "NOT_RESPONDING"]


def start_all(config: ClusterConfig) -> None:
    """Bring everything up, on an empty database."""
    start(config, "munged")
    _make_database(config)
    start(config, "mariadb")
    for name in ("munged", "mariadb"):
        wait_daemon(config, name)
    start(config, "slurmdbd")
    wait_daemon(config, "slurmdbd")
    added = slurm_command(config, ["sacctmgr", "-i", "add", "cluster", config.cluster_name])
    if added.returncode != 0:
        raise ClusterError(f"sacctmgr add cluster: {added.stdout}{added.stderr}")
    start(config, "slurmctld")
    for name in SLURMDS:
        start(config, name)
    wait_daemon(config, "slurmctld")
    for name in SLURMDS:
        wait_daemon(config, name)


def _make_database(config: ClusterConfig) -> None:
    config.database.mkdir(mode=0o700)
    made = subprocess.run(
        [
            program("mariadb-install-db"),
            f"--defaults-file={config.my_cnf}",
            "--user=root",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
        ],
        env=daemon_env(config),
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise ClusterError(f"mariadb-install-db: {made.stdout[-2000:]}{made.stderr[-2000:]}")


def log_tails(config: ClusterConfig, names: Sequence[str] = STOP_ORDER, num_lines: int = 15) -> str:
    """Return the last lines of the daemons' logs."""
    tails = []
    for path in sorted(config.logs.glob("*")):
        if any(path.stem == name for name in names):
            lines = path.read_text(errors="replace").splitlines()[-num_lines:]
            if lines:
                tails.append("\n".join([f"--- {path}", *lines]))
    return "\n".join(tails)
