"""A small real run on the test cluster, what may be done to it, and what must hold in the end."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.schedulers.agreement import AGREE_S
from tests.cluster.cluster import Cluster, wait_until
from tests.end_to_end.demo import (
    assert_every_step_once,
    copy_configs,
    data_set,
    require_same,
    small,
    weights,
)
from tests.end_to_end.driver import Driver, is_alive, rank_pid, wait_for

MAX_RESUMES = 6
END_S = 240.0 + AGREE_S
"""Limit for the end of a run. A controller that lost its state may never learn about jobs that the
accounting has as pending. Those count as alive for `AGREE_S`, and only then can be resumed."""
ON_TWO_NODES = {
    "cluster": "clusters/test-cluster.yaml",
    "stages.train.resources.nodes": 2,
    "stages.train.resources.tasks_per_node": 1,
    "stages.train.resources.gpus_per_node": 1,
    "stages.train.resources.gpu": "[v100, a100]",
}


@dataclass
class Scene:
    """One run, and chance with a seed."""

    driver: Driver
    cluster: Cluster
    chance: random.Random
    run_dir: Path = Path()
    num_injected: int = 0
    num_resumes: int = 0

    def words(self, **more: Any) -> list[str]:
        """The arguments of a submit; `more` as `--set`, with dots for double underscores."""
        values = ON_TWO_NODES | {key.replace("__", "."): value for key, value in more.items()}
        sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return [copy_configs(self.driver), *small(), *sets]

    def submit(self, **more: Any) -> None:
        """Submit the demo, small, with training on two nodes."""
        self.run_dir = self.driver.submit(*self.words(**more))

    def began(self, stage: str, number: int = 1) -> list[dict[str, Any]]:
        """Wait until so many attempts of a stage have begun, and return their records."""
        folder = self.run_dir / "attempts" / stage

        def found() -> list[Path]:
            paths = sorted(folder.glob("*.json"))
            return paths if len(paths) >= number else []

        return [json.loads(path.read_text()) for path in wait_for(found, f"{stage} at work")]

    def running(self, stage: str) -> list[str]:
        """Ids of the stage's jobs and elements that Slurm says are running."""
        return [
            row["job_id"]
            for row in self.cluster.squeue()
            if row["state"] == "RUNNING" and row["name"].split(".")[1] == stage
        ]

    def trains(self) -> dict[str, Any]:
        """Wait until training has saved a checkpoint and goes on; its newest attempt."""
        folder = self.run_dir / "data" / "train" / "checkpoints"
        wait_for(lambda: list(folder.glob("step-*")), "a checkpoint")
        return self.began("train")[-1]

    def rank_pids(self, attempt: dict[str, Any]) -> list[int]:
        """Pids of both ranks of a training's attempt, once they have started."""
        label = f"s00000.a{attempt['attempt']:04d}"

        def found() -> list[int]:
            pids = [rank_pid(self.run_dir, "train", label, rank) for rank in range(2)]
            return [pid for pid in pids if pid is not None] if None not in pids else []

        return wait_for(found, "the ranks' pids")

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal; False if the process has ended already."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        self.num_injected += 1
        return True

    def processes(self, *words: str) -> list[int]:
        """Pids of live processes of the user whose command line holds all these words."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            pid = int(path.parent.name)
            if all(word in line for word in words) and pid != os.getpid() and is_alive(pid):
                found.append(pid)
        return found

    def staged(self) -> list[tuple[int, str, bool]]:
        """Each attempt of a training: its number, node, and whether a rank copied shards there."""
        found = []
        for attempt in self.began("train"):
            number, folder = attempt["attempt"], self.run_dir / "timing" / "train"
            files = folder.glob(f"s00000.a{number:04d}/rank-*.spans.jsonl")
            spans = [json.loads(line) for path in files for line in path.read_text().splitlines()]
            copied = [span["copied"] for span in spans if span["name"] == "stage_in"]
            found.append((number, *attempt["node_names"], any(copied)))
        return found

    def finish(self) -> None:
        """Mend the cluster and resume, as its user would, until the run is complete."""
        for _ in range(MAX_RESUMES):
            self.cluster.heal_daemons()
            if not self.resume_if_needed():
                return
        status = self.driver.wait(self.run_dir, timeout_s=END_S)
        raise AssertionError(f"not complete after {MAX_RESUMES} resumes: {status}")

    def resume_if_needed(self) -> bool:
        """Wait for the run's end, and resume it unless it is complete; whether it was not."""
        if self.driver.wait(self.run_dir, timeout_s=END_S)["status"] == "completed":
            return False
        self.driver.json("resume", str(self.run_dir))
        self.num_resumes += 1
        return True

    def require_undisturbed(self, undisturbed: Path) -> None:
        """Same data, same weights, every step once, no job left, none submitted twice."""
        require_same(data_set(self.run_dir), data_set(undisturbed))
        assert weights(self.run_dir) == weights(undisturbed)
        assert_every_step_once(self.run_dir)
        self.require_clean_queue()

    def require_clean_queue(self) -> None:
        """No orphan, and one job at most for each name, which carries the intent's token."""
        wait_until(lambda: self.cluster.squeue() == [], "an empty queue", timeout_s=60)
        argv = ["sacct", "-X", "-n", "-P", "-S", "now-1hours", "--format", "JobID,JobName"]
        jobs = {
            (line.partition("|")[0].partition("_")[0], line.partition("|")[2])
            for line in self.cluster.run_as_user(argv).stdout.splitlines()
        }
        names = {
            json.loads(path.read_text())["job_name"]
            for path in self.run_dir.glob("ledger/*.json")
            if json.loads(path.read_text())["kind"] == "intent"
        }
        times = Counter(name for _, name in jobs if name in names)
        assert all(number == 1 for number in times.values()), times
