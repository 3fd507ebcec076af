"""A real data set of the demo's pictures, and ranks as real processes."""

import contextlib
import errno
import gc
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.timings.step_records import (
    StepFile,
    read_spans,
    read_steps,
    spans_path,
    steps_path,
)  # fmt: skip
from tests.contexts import make_context
from tests.pipeline.build import write_csv_manifest
from tests.shapes_data import make_shapes, parent

ROOT = Path(__file__).parents[3]
TINY_MODEL = {
    "vision": {"hidden_size": 32, "num_layers": 1, "num_heads": 2},
    "language": {"hidden_size": 32, "num_layers": 1, "num_heads": 2},
}
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests/plants")])  # which plants what is asked for
TIMEOUT_S = 300
"""Inductor compiles its kernels for two minutes on two busy cores."""


@pytest.fixture(scope="session", autouse=True)
def _quick_ends_of_runs():
    """A run here need not wait until its process may end, nor collect what all tests share."""

    from pipeline.train import stage  # noqa: F401
    from pipeline.train.ranks import process_group

    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "_WORKERS_END_S", 0.0)
        yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory):
    """Folder with `render/` (manifests, processor) and `consolidate/` (40 samples).

    Answers are of many lengths, so that ranks and microbatches supervise unequal numbers.
    """
    root = tmp_path_factory.mktemp("demo")
    return make_shapes(root, num_train=40, num_heldout=6, length_of=lambda i: i * i % 11)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Folders of a data set and of a tiny Qwen2.5-VL that takes it."""
    from tests.pipeline.models.tiny import write_dataset, write_tiny  # loads transformers

    folder = tmp_path_factory.mktemp("qwen2_5_vl")
    return write_dataset("qwen2_5_vl", folder), write_tiny("qwen2_5_vl", folder / "model")


@pytest.fixture(scope="session")
def chains(tmp_path_factory):
    """Folders of a data set with answers on three levels, and of a tiny SmolVLM."""
    from tests.pipeline.models.tiny import write_chains, write_tiny  # loads transformers

    folder = tmp_path_factory.mktemp("chains")
    return write_chains("smolvlm", folder), write_tiny("smolvlm", folder / "model")


def fail_on(patch, module, function, name):
    """`function` of `module` meets a stale handle at the file `name`."""
    really = getattr(module, function)

    def read(path):
        if path.name == name:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return really(path)

    patch.setattr(module, function, read)


def reserve_port() -> socket.socket:
    """Holds a port that the ranks may listen on, and that nobody else is given while it is open.

    Linux lets a socket listen where another is bound that does not, if both have SO_REUSEADDR, as
    torch's has.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    return reserved


def rank_env(**more: str) -> dict[str, str]:
    """Of a process that imports the code as it is here and computes on one core."""
    return {**os.environ, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1", **more}


def run_ranks(command: list[str], num_ranks: int, *tail: str, timeout_s: float = 120) -> list[int]:
    """Start ranks with their number, a free port and `tail`; return their exit codes."""
    with reserve_port() as reserved:
        port = str(reserved.getsockname()[1])
        ranks = [
            subprocess.Popen([sys.executable, *command, str(rank), port, *tail], env=rank_env())
            for rank in range(num_ranks)
        ]
        try:
            return [rank.wait(timeout=timeout_s) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


@contextlib.contextmanager
def full_disk(num_bytes):
    """No file grows beyond so many bytes: a real limit of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TrainRun:
    """Starts all ranks of one attempt after the other in a folder of its own."""

    def __init__(self, root: Path, demo_data: Path, config: dict) -> None:
        self.root = root
        self.demo_data = demo_data
        self.config = {
            "device": "cpu",
            "model": TINY_MODEL,
            "num_steps": 6,
            "global_batch_size": 8,
            "num_lanes": 4,
            "num_compute_threads": 1,
            "collective_timeout_min": 1.0,
            "checkpoint": {"every_min": None},
            **config,
        }
        self.output_dir = root / "train"
        self._processes: list[subprocess.Popen] = []
        self._reserved: list[socket.socket] = []
        self.attempt = 0

    def context(self, rank: int = 0, num_ranks: int = 1, **changes):
        attempt = changes.get("attempt", self.attempt)
        values = {
            "attempt": attempt,
            "rank": rank,
            "num_ranks": num_ranks,
            "local_rank": rank,
            "num_local_ranks": num_ranks,
            "timing_dir": self.timing_dir(attempt),
            "task_dir": self.root / "tasks" / str(attempt),
            "parents": (parent("consolidate", self.demo_data),),
        }
        return make_context("train", self.root, **values | changes)

    def start(self, num_ranks: int = 2) -> list[subprocess.Popen]:
        self.attempt += 1
        shared = {"main_port": self.new_port(), "config": self.config}
        return [
            self.spawn("rank_process.py", rank, self.context(rank, num_ranks, **shared))
            for rank in range(num_ranks)
        ]

    def spawn(self, script: str, rank: int, *contexts) -> subprocess.Popen:
        """A rank as a process of its own, which makes the attempts of these contexts."""
        file = self.root / f"contexts.{self.attempt}.{rank}.json"
        file.write_text(json.dumps([record_to_json(context) for context in contexts]))
        command = [sys.executable, Path(__file__).with_name(script), file, self.result_path(rank)]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        process = subprocess.Popen(command, env=rank_env(RANK=str(rank)), **pipes)
        self._processes.append(process)
        return process

    def new_port(self) -> int:
        self._reserved.append(reserve_port())
        return self._reserved[-1].getsockname()[1]

    def timing_dir(self, attempt: int | None = None) -> Path:
        return self.root / "timing" / str(attempt or self.attempt)

    def result_path(self, rank: int) -> Path:
        return self.root / f"result.{self.attempt}.{rank}.json"

    def finish(self, processes: list[subprocess.Popen]) -> list[tuple[int, str]]:
        """Exit code and standard error of every rank."""
        ends = []
        for process in processes:
            _, stderr = process.communicate(timeout=TIMEOUT_S)
            ends.append((process.returncode, stderr))
        return ends

    def run_here(self, work: dict | None = None, **changes) -> dict:
        """One rank in the test's own process, strategy `single` unless `changes` say otherwise.

        `work`: fields of the context that say which work of the stage this is.
        """
        import torch

        from pipeline.train import run
        from pipeline.train.ranks.process_group import leave_ranks

        if "compile" in {**self.config, **changes}:
            torch._dynamo.reset()  # a layer that another test has compiled is not compiled again
        self.attempt += 1
        context = self.context(main_port=self.new_port(), **(work or {}))
        try:
            return run({**self.config, "strategy": "single", **changes}, context)
        finally:
            leave_ranks()  # the next test of this process joins another group

    def run(self, num_ranks: int = 2) -> dict:
        ends = self.finish(self.start(num_ranks))
        assert [code for code, _ in ends] == [0] * num_ranks, ends[0][1] + ends[-1][1]
        return self.result()

    def result(self):
        """What the processes' rank 0 gave."""
        return json.loads(self.result_path(0).read_text())

    def records(self, rank: int = 0, attempt: int | None = None) -> StepFile:
        return read_steps(steps_path(self.timing_dir(attempt), rank))

    def steps(self, rank: int = 0, attempt: int | None = None):
        return self.records(rank, attempt).steps

    def losses(self, attempt: int | None = None) -> list[float]:
        return self.steps(attempt=attempt)["loss"].tolist()

    def spans(self, name: str = "", rank: int = 0, attempt: int | None = None) -> list[dict]:
        """Those whose names begin so."""
        spans, _ = read_spans(spans_path(self.timing_dir(attempt), rank))
        return [span for span in spans if span["name"].startswith(name)]

    def checkpoint(self, step: int) -> Path:
        return self.output_dir / f"checkpoints/step-{step:08d}"

    def weights(self) -> bytes:
        return (self.output_dir / "model/model.safetensors").read_bytes()

    def take(self, other: "TrainRun", *, forget_after: int | None = None) -> "TrainRun":
        """Begin with a copy of what another run has left, as its next attempt."""
        shutil.copytree(other.output_dir, self.output_dir)
        self.attempt = other.attempt
        if forget_after is not None:
            self.forget(forget_after)
        return self

    def check_resume(self, step: int = 2, **changes) -> None:
        """Train, forget all that came after `step`, and train again: no bit changes."""
        self.run_here(**changes)
        before = self.weights()
        self.forget(step)
        assert self.run_here(**changes)["resumed_from_step"] == step
        assert self.weights() == before

    def forget(self, step: int) -> None:
        """Remove the checkpoints after `step`, and what was exported."""
        for folder in self.output_dir.glob("checkpoints/step-*"):
            if int(folder.name.removeprefix("step-")) > step:
                shutil.rmtree(folder)
        for name in ("model", "adapters"):
            shutil.rmtree(self.output_dir / name, ignore_errors=True)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for reserved in self._reserved:
            reserved.close()


@pytest.fixture(scope="session")
def plain(make_train_run):
    """One rank that has saved its state after each of its six steps, for tests to `take`."""
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 1, "keep_last": 9})
    run.told = run.run_here()
    return run


@pytest.fixture(scope="session")
def heldout(demo_data) -> str:
    """Manifest of six rows."""
    return str(demo_data / "render/heldout.jsonl")


@pytest.fixture(scope="session")
def make_train_run(tmp_path_factory, demo_data):
    """A maker of training runs that several tests look at; their processes end with the session."""
    runs = []

    def make(**config) -> TrainRun:
        runs.append(TrainRun(tmp_path_factory.mktemp("run"), demo_data, config))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def asking(make_train_run, tmp_path):
    """A run with three held-out rows, and their manifest."""
    manifest = write_csv_manifest(tmp_path / "heldout", 3)
    return make_train_run(evaluate={"manifest": str(manifest), "max_new_tokens": 2}), manifest
