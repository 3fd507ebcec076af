"""The cluster as tests and the command line use it: up, down, run as the user, break things."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.cluster import daemons, host, lifecycle, processes, user
from tests.cluster.config import NODES, ClusterConfig, render_slurm_conf
from tests.cluster.errors import ClusterError, ClusterUnavailableError
from tests.cluster.lifecycle import DEFAULT_FOLDER

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
        """Start a cluster and return it; if one runs in this folder already, return that one.

        Args:
            folder: Absolute; what an earlier cluster left in it is stopped and removed first.
            settings: Fields of `ClusterConfig`.

        Raises:
            ClusterUnavailableError: this machine cannot have it.
            ClusterError: a daemon did not start; the message carries the logs' tails.
        """
        with contextlib.suppress(ClusterUnavailableError):
            cluster = cls.attach(folder)
            if cluster.is_up():
                return cluster
        return cls(lifecycle.bring_up(folder, settings))

    @classmethod
    def attach(cls, folder: Path = DEFAULT_FOLDER) -> "Cluster":
        """Return the cluster that was started in this folder.

        Raises:
            ClusterUnavailableError: there is none.
        """
        return cls(lifecycle.load(folder))

    def down(self) -> None:
        """Stop it and undo all that it changed on the machine."""
        lifecycle.bring_down(self.config.folder)

    @property
    def python(self) -> str:
        """The interpreter for jobs: this one. `up` has seen to it that the user can run it."""
        return sys.executable

    def is_up(self) -> bool:
        """Return whether every daemon runs."""
        return all(daemons.running(self.config, name) for name in daemons.STOP_ORDER)

    def env(self) -> dict[str, str]:
        """Return the whole environment of the user's commands; nothing comes from the caller's."""
        return user.env(self.config)

    def as_user(self, argv: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs argv as the user, for Popen with `env()`."""
        return user.command(self.config, argv)

    def run_as_user(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
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
        done = user.run(
            self.config, argv, cwd=cwd, extra_env=env or {}, stdin=stdin, timeout_s=timeout_s
        )
        if check and done.returncode != 0:
            words = " ".join(str(word) for word in argv)
            raise ClusterError(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def work_dir(self, prefix: str = "work") -> Path:
        """Return a new empty folder that belongs to the user."""
        return user.make_folder(self.config, prefix)

    def small_disk(self, *, size_mb: int) -> Path:
        """Return a folder of the user's that holds no more than this (a tmpfs, until `down`)."""
        path = self.work_dir("disk") / "disk"
        who = user.account(self.config)
        host.mount_small_disk(path, size_mb=size_mb, uid=who.pw_uid, gid=who.pw_gid)
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

        slurmctld sends the start of a job up to 5 s late. A job that ended before has a makeshift
        row until then: its state is right, its name is "allocation", its partition empty.
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

    def forget_jobs(
        self, *, first_id: int, last_id: int | None = None, min_job_age_s: int | None = None
    ) -> None:
        """Restart the controller without its state, and wait until nodes have ended its jobs.

        Ids begin at `first_id`, and there again after `last_id`. What else `slurm.conf` says stays.
        A node drops a new job in silence if, within the same second, it has killed one of the same
        id ("already killed, do not launch"), so that second is awaited, too.
        """
        self.stop_daemon("slurmctld")
        shutil.rmtree(self.config.state)
        self.config.state.mkdir(mode=0o755)
        config = self.config
        if min_job_age_s is not None:
            config = dataclasses.replace(config, min_job_age_s=min_job_age_s)
        lines = [f"FirstJobId={first_id}"]
        lines += [] if last_id is None else [f"MaxJobId={last_id}"]
        self.config.slurm_conf.write_text(render_slurm_conf(config) + "\n".join(lines) + "\n")
        self.start_daemon("slurmctld")
        self.heal_daemons()
        wait_until(lambda: not processes.steps(config.folder), "the end of lost jobs", timeout_s=60)
        ended_s = int(time.time())
        wait_until(lambda: int(time.time()) > ended_s, "the next second of the clock")

    @contextlib.contextmanager
    def kill_wait(self, wait_s: int) -> Iterator[None]:
        """Let cancelled jobs that ignore SIGTERM live for so long, in which a test must act."""
        conf = self.config.slurm_conf
        before = conf.read_text()
        usual = f"KillWait={self.config.kill_wait_s}\n"
        assert usual in before
        conf.write_text(before.replace(usual, f"KillWait={wait_s}\n"))
        self._admin("scontrol", "reconfigure")
        try:
            yield
        finally:
            conf.write_text(before)
            self._admin("scontrol", "reconfigure")

    def next_job_id(self) -> int:
        """Return the id that the controller gives to the next job."""
        shown = self._admin("scontrol", "show", "config")
        (line,) = (line for line in shown.splitlines() if line.startswith("NEXT_JOB_ID"))
        return int(line.partition("=")[2])

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

    def set_time_limit(self, job_id: int | str, minutes: int) -> None:
        """Give a job another time limit, counted from its start."""
        self._admin("scontrol", "update", f"jobid={job_id}", f"timelimit={minutes}")

    def resume_node(self, node: str) -> None:
        """Take a node back, and wait until it takes jobs."""
        self._admin("scontrol", "update", f"nodename={node}", "state=resume")
        unfit = {"DOWN", "DRAIN", "NOT_RESPONDING"}
        wait_until(lambda: not unfit & set(self.node_state(node)), f"node {node} to be back")

    def create_partition(self, name: str, nodes: str, *, hidden: bool = False) -> None:
        """Add a partition until `delete_partition`, or a restart of slurmctld."""
        words = [f"PartitionName={name}", f"Nodes={nodes}", f"Hidden={'YES' if hidden else 'NO'}"]
        self._admin("scontrol", "create", *words)

    def limit_partition(self, name: str, max_min: int) -> None:
        """Allow jobs of a partition no more than `max_min` minutes; pending ones, too."""
        self._admin("scontrol", "update", f"PartitionName={name}", f"MaxTime={max_min}")

    def delete_partition(self, name: str) -> None:
        """Remove one that was created."""
        self._admin("scontrol", "delete", f"PartitionName={name}")

    def heal_daemons(self) -> None:
        """Start what does not run, and take every node back; jobs go on."""
        for name in reversed(daemons.STOP_ORDER):
            if daemons.running(self.config, name) is None:
                self.start_daemon(name)
        self._take_nodes_back()

    def heal(self) -> None:
        """Undo what a test broke: no jobs, every daemon running, every node idle."""
        for name in reversed(daemons.STOP_ORDER):
            if daemons.running(self.config, name) is None:
                self.start_daemon(name)
        self.cancel_all()
        self._take_nodes_back()

    def _take_nodes_back(self) -> None:
        for node in NODES:
            if {"DOWN", "DRAIN"} & set(self.node_state(node)):
                self.resume_node(node)

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
