"""The test cluster as tests and the command line use it: up, down, run as the user, break things."""

import contextlib
import dataclasses
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.cluster import daemons, host, processes
from tests.cluster.config import GPUS_PER_NODE, NODES, NUM_PORTS, ClusterConfig
from tests.cluster.errors import ClusterError, ClusterUnavailableError
from tests.cluster.packages import SEARCH_PATH, ensure_packages

# Not in the checkout: that may lie where an ordinary user cannot go, and sockets want short paths.
DEFAULT_FOLDER = Path("/var/tmp/slurm-jobs-cluster")
CHECKOUT = Path(__file__).resolve().parents[2]
_SQUEUE_FIELDS = {"job_id": "%i", "partition": "%P", "name": "%j", "state": "%T", "reason": "%r"}
_SQUEUE_FIELDS |= {"nodes": "%N", "dependency": "%E"}
_SACCT_FIELDS = ("JobID", "JobName", "Partition", "State", "ExitCode", "NodeList", "MaxRSS")


def wait_until(
    condition: Callable[[], bool], what: str, *, timeout_s: float = 30.0, poll_s: float = 0.1
) -> None:
    """Poll until the condition holds.

    Raises:
        ClusterError: it did not in time; the message says `what` was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(poll_s)


class Cluster:
    """One Slurm on this machine. Every method needs root; jobs are the ordinary user's."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config

    @classmethod
    def up(cls, folder: Path = DEFAULT_FOLDER, **settings: object) -> "Cluster":
        """Start a cluster and return it; one that already runs in this folder is returned as it is.

        Args:
            folder: Absolute; what an earlier cluster left in it is stopped and removed first.
            settings: Fields of `ClusterConfig`.

        Raises:
            ClusterUnavailableError: this machine cannot have it.
            ClusterError: a daemon did not start; the message carries the logs' tails.
        """
        ensure_packages()
        with contextlib.suppress(ClusterUnavailableError):
            cluster = cls.attach(folder)
            if cluster.is_up():
                return cluster
        cls.down(folder)
        config = ClusterConfig(
            folder=folder,
            host=socket.gethostname().partition(".")[0],
            first_port=_free_ports(folder),
            db_password=secrets.token_hex(16),
            **settings,  # type: ignore[arg-type]
        )
        cluster = cls(config)
        try:
            cluster._prepare()
            daemons.start_all(config)
        except BaseException as error:
            tails = daemons.log_tails(config)
            cls.down(folder)
            if isinstance(error, ClusterError) and not isinstance(error, ClusterUnavailableError):
                raise ClusterError(f"the cluster did not start: {error}\n{tails}") from error
            raise
        return cluster

    @classmethod
    def attach(cls, folder: Path = DEFAULT_FOLDER) -> "Cluster":
        """Return the cluster that was started in this folder.

        Raises:
            ClusterUnavailableError: there is none.
        """
        try:
            fields = json.loads((folder / "cluster.json").read_text())
        except FileNotFoundError as error:
            raise ClusterUnavailableError(f"no cluster was started in {folder}") from error
        return cls(ClusterConfig(**{**fields, "folder": Path(fields["folder"])}))

    @staticmethod
    def down(folder: Path = DEFAULT_FOLDER) -> None:
        """Stop the folder's cluster and undo all that it changed. Nothing happens if there is none."""
        if not folder.exists():
            return
        try:
            config = Cluster.attach(folder).config
        except ClusterUnavailableError:
            if any(folder.iterdir()):
                raise ClusterError(f"{folder} is not a cluster's folder: move it away") from None
            folder.rmdir()
            return
        daemons.stop_daemons(config, daemons.STOP_ORDER, grace_s=3)
        for _ in range(5):  # a process that forks while the list is made is seen the next time
            left = processes.strays(folder, config.slurm_conf)
            if not left:
                break
            processes.stop(left, grace_s=1)
        host.unmount_below(folder)
        _restore_host(config)
        if host.mount_points_below(folder):
            raise ClusterError(f"something is still mounted below {folder}")
        shutil.rmtree(folder)

    def _prepare(self) -> None:
        config = self.config
        user = host.ensure_user(config.user)
        config.folder.mkdir(mode=0o755, parents=True)
        config.folder.chmod(0o755)
        record = config.folder / "cluster.json"
        record.touch(mode=0o600)
        record.write_text(json.dumps(dataclasses.asdict(config), default=str, indent=1) + "\n")
        daemons.write_files(config)
        host.make_devices(config.devices, GPUS_PER_NODE)
        config.home.mkdir(mode=0o755)
        os.chown(config.home, user.pw_uid, user.pw_gid)
        host.write_hosts(host.hosts_with_block(host.HOSTS.read_text(), config.folder, NODES))
        paths = _paths_for_user()
        for folder, permission in host.private_folders(paths, user.pw_uid).items():
            host.grant(folder, user.pw_uid, permission)
        tried = self.run_as_user([self.python, "-c", "import tests.cluster"], cwd=CHECKOUT, check=False)
        if tried.returncode != 0:
            raise ClusterUnavailableError(
                f"user {config.user} cannot use {self.python} in {CHECKOUT}:\n{tried.stderr[-2000:]}"
            )

    @property
    def python(self) -> str:
        """The interpreter for jobs: this one. `up` has seen to it that the user can run it."""
        return sys.executable

    @property
    def user(self) -> pwd.struct_passwd:
        return pwd.getpwnam(self.config.user)

    def is_up(self) -> bool:
        """Return whether every daemon runs."""
        return all(daemons.running(self.config, name) for name in daemons.STOP_ORDER)

    def env(self) -> dict[str, str]:
        """Return the whole environment of the user's commands; nothing is taken from the caller's."""
        return {
            "PATH": f"{Path(self.python).parent}:{SEARCH_PATH}",
            "HOME": str(self.config.home),
            "USER": self.config.user,
            "LOGNAME": self.config.user,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.config.slurm_conf),
        }

    def run_as_user(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout_s: float | None = 120.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the ordinary user, with what it prints captured.

        Args:
            argv: Looked up in the PATH of `env()`.
            cwd: The user's home if None.
            env: Added to `env()`.
            stdin: Text for standard input, e.g. a batch script for sbatch.
            timeout_s: After this the command is killed; None waits for ever.
            check: A failure raises.

        Raises:
            ClusterError: it failed; with its output.
            subprocess.TimeoutExpired: it ran too long.
        """
        done = subprocess.run(
            self.as_user(argv),
            cwd=cwd or self.config.home,
            env={**self.env(), **(env or {})},
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            words = " ".join(str(word) for word in argv)
            raise ClusterError(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def as_user(self, argv: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs argv as the user, for Popen with `env()`."""
        name = self.config.user
        switch = ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups", "--no-new-privs"]
        return [*switch, "--", *(str(word) for word in argv)]

    def work_dir(self, prefix: str = "work") -> Path:
        """Return a new empty folder that belongs to the user."""
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=self.config.work))
        path.chmod(0o755)
        os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    def small_disk(self, *, size_mb: int) -> Path:
        """Return a new folder of the user's that holds no more than this (a tmpfs); `down` unmounts it."""
        path = Path(tempfile.mkdtemp(prefix="disk-", dir=self.config.work)) / "disk"
        path.parent.chmod(0o755)
        host.mount_small_disk(path, size_mb=size_mb, uid=self.user.pw_uid, gid=self.user.pw_gid)
        return path

    def submit(self, script: str, *options: str, cwd: Path) -> int:
        """Submit a batch script (shell lines, `#!/bin/bash` is added) and return the job's id."""
        argv = ["sbatch", "--parsable", *options]
        done = self.run_as_user(argv, cwd=cwd, stdin=f"#!/bin/bash\n{script}\n")
        return int(done.stdout.strip().partition(";")[0])

    def squeue(self) -> list[dict[str, str]]:
        """Return what is in the queue, one row an array task: job_id, state, reason, nodes, ..."""
        layout = "|".join(_SQUEUE_FIELDS.values())
        done = self.run_as_user(["squeue", "--all", "--noheader", f"--format={layout}"])
        keys = list(_SQUEUE_FIELDS)
        return [dict(zip(keys, line.split("|"), strict=True)) for line in done.stdout.splitlines()]

    def sacct(
        self, *job_ids: int, fields: Sequence[str] = _SACCT_FIELDS, duplicates: bool = False
    ) -> list[dict[str, str]]:
        """Return the accounting's rows, steps included; it lags behind the queue.

        With `duplicates`, the earlier starts of requeued jobs too.
        """
        argv = ["sacct", "--parsable2", "--noheader", f"--format={','.join(fields)}"]
        argv += [f"--jobs={','.join(str(job_id) for job_id in job_ids)}"]
        argv += ["--duplicates"] if duplicates else []
        lines = self.run_as_user(argv).stdout.splitlines()
        return [dict(zip(fields, line.split("|"), strict=True)) for line in lines]

    def job_info(self, job_id: int | str) -> dict[str, str]:
        """Return what `scontrol show job` says of one job or array task (`7_3`)."""
        shown = self._admin("scontrol", "show", "job", "--oneliner", str(job_id))
        return dict(word.partition("=")[::2] for word in shown.split() if "=" in word)

    def job_state(self, job_id: int | str) -> str:
        """Return Slurm's state word of one job or array task."""
        return self.job_info(job_id)["JobState"]

    def wait_for_state(self, job_id: int | str, *states: str, timeout_s: float = 30.0) -> str:
        """Wait until the job is in one of these states, and return which."""
        what = f"job {job_id} to be {' or '.join(states)}"
        try:
            wait_until(lambda: self.job_state(job_id) in states, what, timeout_s=timeout_s)
        except ClusterError as error:
            raise ClusterError(f"{error}; it is {self.job_info(job_id)}") from error
        return self.job_state(job_id)

    def start_daemon(self, name: str) -> None:
        """Start mariadb, slurmdbd, slurmctld or slurmd-NODE, and wait until it answers."""
        daemons.start(self.config, name)
        daemons.wait_daemon(self.config, name)

    def stop_daemon(self, name: str) -> None:
        """Stop a daemon in good order (SIGTERM)."""
        daemons.stop_daemons(self.config, [name])

    def kill_daemon(self, name: str) -> None:
        """Kill a daemon as a crash would (SIGKILL)."""
        process = daemons.running(self.config, name)
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)
            processes.wait_gone([process], timeout_s=10)

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd; its jobs go on until Slurm notices, after slurmd_timeout_s."""
        self.kill_daemon(f"slurmd-{node}")

    def start_slurmd(self, node: str) -> None:
        self.start_daemon(f"slurmd-{node}")

    def node_state(self, node: str) -> list[str]:
        """Return a node's state and flags, e.g. ["IDLE"]."""
        return daemons.node_state(self.config, node)

    def set_node_down(self, node: str, reason: str = "test") -> None:
        """Declare a node dead: its jobs end as NODE_FAIL, or are requeued, at once."""
        self._admin("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def resume_node(self, node: str) -> None:
        """Take a node back, and wait until it is idle."""
        self._admin("scontrol", "update", f"nodename={node}", "state=resume")
        wait_until(lambda: self.node_state(node) == ["IDLE"], f"node {node} to be idle")

    def cancel_all(self) -> None:
        """Cancel every job and wait until the queue is empty."""
        self._admin("scancel", "--quiet", f"--user={self.config.user}")
        wait_until(lambda: not self.squeue(), "an empty queue", timeout_s=60)

    def log_tails(self, num_lines: int = 15) -> str:
        return daemons.log_tails(self.config, num_lines=num_lines)

    def _admin(self, *argv: str) -> str:
        done = daemons.slurm_command(self.config, argv)
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
        return done.stdout


def _paths_for_user() -> list[Path]:
    """Return the folders that the user's jobs read: Python, its packages, the checkout."""
    executable = Path(sys.executable)
    found = [Path(sys.prefix), Path(sys.base_prefix), executable.parent, executable.resolve().parent]
    return [*dict.fromkeys([*found, CHECKOUT])]


def _restore_host(config: ClusterConfig) -> None:
    text = host.HOSTS.read_text()
    host.write_hosts(host.hosts_without_block(text, config.folder))
    if host.other_clusters(text, config.folder):
        return  # they need the same folders; the last cluster closes them
    with contextlib.suppress(KeyError):
        uid = pwd.getpwnam(config.user).pw_uid
        for path in _paths_for_user():
            for folder in (path, *path.parents):
                if host.has_grant(folder, uid):
                    host.revoke(folder, uid)


def _free_ports(folder: Path) -> int:
    """Return the first of NUM_PORTS free ports: where the folder's name points, or the next ones."""
    start = zlib.crc32(str(folder).encode()) % 1000
    for attempt in range(1000):
        # Below 32768, where the kernel takes the ports of outgoing connections from.
        first = 20_000 + (start + attempt) % 1000 * 10
        if all(_is_free(port) for port in range(first, first + NUM_PORTS)):
            return first
    raise ClusterUnavailableError(f"no {NUM_PORTS} free ports between 20000 and 30000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
