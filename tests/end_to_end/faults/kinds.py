"""The faults: each is put into a run at a moment that chance and the run's own events decide."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL
from tests.end_to_end.demo import held
from tests.end_to_end.driver import wait_for
from tests.end_to_end.faults.scene import Scene


def task_killed(scene: Scene) -> None:
    """SIGKILL to the supervisor of an array task, which is the batch process of its job."""
    scene.submit()
    # The newest has only just begun.
    attempts = scene.began("preprocess", scene.chance.randint(1, 4))
    scene.kill(max(attempts, key=lambda attempt: attempt["started_unix_s"])["pid"])


def rank_killed(scene: Scene) -> None:
    """SIGKILL to one rank of a training."""
    scene.submit()
    scene.kill(scene.chance.choice(scene.rank_pids(scene.trains())))


def srun_killed(scene: Scene) -> None:
    """SIGKILL to the srun that started the ranks."""
    scene.submit()
    scene.trains()
    for pid in scene.processes("srun ", str(scene.run_dir)):
        scene.kill(pid)


def slurmd_killed(scene: Scene) -> None:
    """SIGKILL to the slurmd of a node that trains; it is started again at the end."""
    scene.submit()
    node = scene.chance.choice(scene.trains()["node_names"])
    scene.cluster.kill_slurmd(node)
    scene.num_injected += 1


def slurmctld_killed(scene: Scene) -> None:
    """SIGKILL to the controller while tasks run; it comes back while they still do.

    It writes its state down every five seconds. What it did since would be forgotten, until its
    nodes tell it much later: so the tasks stand still until it has written.
    """
    scene.submit(stages__preprocess__setup__0=held(scene.driver)[1].partition("=")[2])
    wait_for(lambda: len(scene.running("preprocess")) == 2, "two tasks that run")
    seen_s = time.time()
    scene.cluster.set_time_limit(scene.running("preprocess")[0], 21)  # something to write down
    state = scene.cluster.config.state / "job_state"
    wait_for(lambda: state.exists() and state.stat().st_mtime > seen_s, "the state written")
    scene.cluster.kill_daemon("slurmctld")
    scene.num_injected += 1
    shown = scene.driver.run("status", str(scene.run_dir), "--fresh", check=None)
    assert "could not be queried: squeue" in shown.stdout
    scene.cluster.start_daemon("slurmctld")
    scene.driver.write("go", "")


def slurmctld_forgets(scene: Scene) -> None:
    """SIGKILL to the controller as soon as tasks start; it asks its nodes for what it lost.

    Their slurmds are started again, because Slurm would not ask them for minutes.
    """
    scene.submit()
    nodes = {name for a in scene.began("preprocess", 2) for name in a["node_names"]}
    scene.cluster.kill_daemon("slurmctld")
    scene.num_injected += 1
    for node in nodes:
        scene.cluster.kill_slurmd(node)
    scene.cluster.heal_daemons()


def node_down(scene: Scene) -> None:
    """A node that trains is declared dead: Slurm requeues the job on nodes of the same kind."""
    scene.submit()
    attempt = scene.trains()
    scene.cluster.set_node_down(scene.chance.choice(attempt["node_names"]))
    scene.num_injected += 1
    scene.cluster.wait_for_state(attempt["job_id"], "PENDING", "RUNNING", "COMPLETED")
    scene.cluster.heal_daemons()


def other_node(scene: Scene) -> None:
    """The only node that trains is declared dead; the job continues on another and stages again."""
    local = scene.driver.write("local/.keep", "").parent
    one = {"nodes": 1, "tasks_per_node": 2, "gpus_per_node": 2, "gpu": "[v100]"}
    resources = {f"stages__train__resources__{key}": value for key, value in one.items()}
    scene.submit(stages__train__node_local_dir=local, **resources)
    (first,) = scene.trains()["node_names"]
    scene.cluster.set_node_down(first)
    scene.num_injected += 1
    (second,) = scene.began("train", 2)[-1]["node_names"]
    assert second != first
    assert scene.driver.wait(scene.run_dir)["status"] == "completed"
    assert scene.staged() == [(1, first, True), (2, second, True)]
    assert all(len(scene.began(name)) == num for name, num in NUM_TASKS.items())


def preempted(scene: Scene) -> None:
    """A job of a higher tier takes the nodes of the training, which is stopped and requeued."""
    scene.submit(stages__train__resources__slurm__partition="low")
    nodes = scene.trains()["node_names"]
    options = [f"--nodelist={','.join(nodes)}", "--partition=high", "--exclusive", "--mem=1G"]
    other = scene.cluster.submit(
        "sleep 5", f"--nodes={len(nodes)}", *options, cwd=scene.driver.folder
    )
    scene.num_injected += 1
    scene.cluster.wait_for_state(other, "COMPLETED", timeout_s=90)


def stop_signal(scene: Scene) -> None:
    """scancel sends the signal of the time limit: all ranks save, one requeues."""
    scene.submit()
    job_id = scene.trains()["job_id"]
    scene.cluster.run_as_user(["scancel", "--batch", "--signal=USR2", job_id])
    scene.num_injected += 1


def time_limit_near(scene: Scene) -> None:
    """The time limit is near: Slurm sends its signal, all ranks save, one requeues.

    The ranks stand still until the signal has come, so that it comes in the middle.
    """
    scene.submit()
    attempt = scene.trains()
    pids = scene.rank_pids(attempt)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    scene.cluster.set_time_limit(attempt["job_id"], 1)
    scene.num_injected += 1
    wait_for(lambda: all(_is_told(pid) for pid in pids), "the signal before the time limit")
    scene.cluster.set_time_limit(attempt["job_id"], 60)  # of the job when it comes back
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _is_told(pid: int) -> bool:
    """Whether the request to stop waits for a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (pending,) = (int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd"))
    return bool(pending >> (RELAY_SIGNAL - 1) & 1)


def time_limit_hit(scene: Scene) -> None:
    """A rank hangs and handles no signal; the time limit ends the job."""
    scene.submit()
    attempt = scene.trains()
    os.kill(scene.chance.choice(scene.rank_pids(attempt)), signal.SIGSTOP)
    scene.cluster.set_time_limit(attempt["job_id"], 1)
    scene.num_injected += 1
    scene.cluster.wait_for_state(attempt["job_id"], "TIMEOUT", timeout_s=240)


def disk_full(scene: Scene) -> None:
    """The disk under the run folder is full while tasks run, and again while training does."""
    disk = scene.cluster.small_disk(size_mb=512)
    scene.submit(runs_dir=disk)
    scene.began("preprocess", scene.chance.randint(1, 4))
    for is_last in (False, True):
        ballast = _fill(disk)
        scene.num_injected += 1
        scene.driver.wait(scene.run_dir)
        ballast.unlink()
        if not is_last:
            scene.resume_if_needed()
            scene.trains()


def _fill(disk: Path) -> Path:
    """A file that leaves no room."""
    path = disk / "ballast"
    with path.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(2**16))
    return path


def read_only(scene: Scene) -> None:
    """The run folder becomes read-only for its owner while tasks run."""
    scene.submit()
    scene.began("preprocess", scene.chance.randint(1, 4))
    folders = [scene.run_dir, *(path for path in scene.run_dir.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    scene.num_injected += 1
    scene.driver.wait(scene.run_dir)
    said = scene.driver.run("resume", str(scene.run_dir), check=3).stderr
    assert "Permission denied" in said
    for folder in folders:
        folder.chmod(0o700)


def accounting_down(scene: Scene) -> None:
    """slurmdbd and its database stop while the run continues, and while `status` runs."""
    scene.submit()
    scene.began("preprocess", scene.chance.randint(1, 4))
    for name in ("slurmdbd", "mariadb"):
        scene.cluster.kill_daemon(name)
        scene.num_injected += 1
    scene.trains()
    shown = scene.driver.run("status", str(scene.run_dir), "--fresh", check=None)
    assert "could not be queried: sacct" in shown.stdout
    scene.cluster.heal_daemons()


def sbatch_times_out(scene: Scene) -> None:
    """Every sbatch submits its job, but reports that the controller did not answer."""
    scene.driver.write(
        "bin/sbatch",
        '#!/bin/bash\n/usr/bin/sbatch "$@" > /dev/null\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2\nexit 1\n",
    ).chmod(0o755)
    path = f"{scene.driver.folder}/bin:{scene.cluster.env()['PATH']}"
    argv = [*scene.driver.command, "submit", *scene.words()]
    scene.cluster.run_as_user(argv, cwd=scene.driver.folder, env={"PATH": path})
    (scene.run_dir,) = (scene.driver.folder / "runs").iterdir()
    scene.num_injected += len(list(scene.run_dir.glob("jobs/*")))


def two_resumes(scene: Scene) -> None:
    """A task fails, and two terminals resume at the same moment: only one of them submits."""
    task_killed(scene)
    scene.driver.wait(scene.run_dir)
    codes = []

    def resume() -> None:
        codes.append(scene.driver.run("resume", str(scene.run_dir), check=None).returncode)

    both = [threading.Thread(target=resume) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    scene.num_resumes += 1
    assert sorted(codes) in ([0, 0], [0, 1]), codes  # the second came too late, or was turned away


def many_kills(scene: Scene) -> None:
    """SIGKILL to random processes of the run, again and again."""
    scene.submit()
    for stage in ("preprocess", "preprocess", "train"):
        scene.trains() if stage == "train" else scene.began(stage)
        victims = scene.processes(str(scene.run_dir))
        if victims:
            number = scene.chance.choice([signal.SIGKILL, signal.SIGTERM])
            scene.kill(scene.chance.choice(victims), number)
        scene.driver.wait(scene.run_dir)
        scene.driver.json("resume", str(scene.run_dir))
        scene.num_resumes += 1


NUM_TASKS = {"render": 1, "preprocess": 4, "consolidate": 1, "report": 1}
"""Of the demo's stages, but for training."""

FAULTS: dict[str, Callable[[Scene], None]] = {
    fault.__name__: fault
    for fault in (
        task_killed,
        rank_killed,
        srun_killed,
        slurmd_killed,
        slurmctld_killed,
        slurmctld_forgets,
        node_down,
        other_node,
        preempted,
        stop_signal,
        time_limit_near,
        time_limit_hit,
        disk_full,
        read_only,
        accounting_down,
        sbatch_times_out,
        two_resumes,
        many_kills,
    )
}
