"""Stages of a user's own, for the tests: they write what they did, and fail when told to."""

import os
import signal
import sys
import time
from pathlib import Path


def work(config, context):
    """Write a file a slice; `fail` maps a slice to how many attempts of it fail."""
    index = context.slice_index
    log = context.output_dir / f"log-{index}"
    with log.open("a") as stream:
        stream.write(f"attempt {context.attempt} rank {context.rank} begins {time.time()}\n")
    if context.attempt <= config.get("fail", {}).get(str(index), 0):
        raise ValueError(f"slice {index} fails on purpose")
    if index in config.get("hang", []) and context.attempt <= config.get("hang_attempts", 1):
        (context.task_dir / f"hangs-{context.rank}").touch()
        while True:
            time.sleep(0.05)
    if config.get("die"):
        os.kill(os.getpid(), getattr(signal, config["die"]))
    if config.get("exit") is not None:
        sys.exit(config["exit"])
    time.sleep(config.get("sleep_s", 0))
    (context.output_dir / f"out-{index}").write_text(config.get("text", "done"))
    with log.open("a") as stream:
        stream.write(f"ends {time.time()}\n")
    if config.get("name_outputs"):
        return {"outputs": {f"out-{index}": len(config.get("text", "done"))}}
    return {"slice": index}


def whose_pipeline(config, context):
    """Which package called `pipeline` a user's own stage gets."""
    import pipeline

    (context.output_dir / "file").write_text(str(Path(pipeline.__file__).resolve()))


def until_stopped(config, context):
    """Count up, save when asked to stop, and go on from there."""
    from slurm_jobs.base.errors import StageStoppedError
    from slurm_jobs.base.processes.stop_requests import stop_requested

    path = context.output_dir / "count"
    count = int(path.read_text()) if path.exists() else 0
    (context.task_dir / "counting").touch()
    while count < config["until"]:
        time.sleep(0.05)
        count += 1
        if stop_requested():
            path.write_text(str(count))
            raise StageStoppedError(f"saved at {count}")
    path.write_text(str(count))
    return {"count": count}


def stops_once(config, context):
    """Stop when asked to, on the first attempt; the second one has nothing left to do."""
    from slurm_jobs.base.errors import StageStoppedError
    from slurm_jobs.base.processes.stop_requests import stop_requested

    if context.attempt == 1:
        while not stop_requested():
            time.sleep(0.02)
        raise StageStoppedError("saved")


def saves_slowly(config, context):
    """On the first attempt save, when asked to stop, for as long as the test wants."""
    import fcntl

    from slurm_jobs.base.errors import StageStoppedError
    from slurm_jobs.base.processes.stop_requests import stop_requested

    with (context.output_dir / "lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (context.output_dir / "beside").touch()
        if context.attempt == 1:
            (context.output_dir / "on").touch()
            while not stop_requested():
                time.sleep(0.02)
            (context.output_dir / "saving").touch()
            while not (context.output_dir / "saved").exists():
                time.sleep(0.02)
            raise StageStoppedError("saved")


def leaves(config, context):
    """End the process in a way that is no return."""
    (context.output_dir / "half").write_text("")
    if config["how"] == "exit":
        sys.exit(0)
    os._exit(0)


def returns(config, context):
    """Return what the config says, as it stands."""
    return config["value"]


def returns_numpy(config, context):
    """Return a number that JSON does not know."""
    import numpy as np

    return {"mean": np.float32(0.5), "count": np.int64(3)}


def until_released(config, context):
    """Work until the test lets go, whatever signal comes, and never two at once."""
    import fcntl

    folder, index = context.output_dir, context.slice_index
    with (folder / f"lock-{index}").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (folder / f"beside-{index}").touch()
        with (folder / f"log-{index}").open("a") as log:
            log.write("begins\n")
        (folder / f"at-work-{index}").touch()
        while not (folder / "released").exists():
            time.sleep(0.01)
        if index in config["fails"] and context.attempt == 1:
            raise ValueError(f"slice {index} fails on purpose")
        (folder / f"out-{index}").write_text(str(index))


def outlives(config, context):
    """Return, raise or leave while something of the process goes on living."""
    import atexit
    import multiprocessing
    import subprocess
    import threading
    from concurrent.futures import ProcessPoolExecutor

    def forever():
        while True:
            time.sleep(0.05)

    # Open for as long as the process lives.
    outlives.files = [os.open(os.devnull, os.O_RDONLY) for _ in range(config.get("num_files", 0))]
    kept = config["kept_by"] if context.rank in config.get("ranks", [0]) else None
    if kept == "thread":
        threading.Thread(target=forever, name="uploader").start()
    elif kept == "exit handler":
        atexit.register(forever)
    elif kept == "pool":
        ProcessPoolExecutor(1).submit(time.sleep, 10_000)
    elif kept == "child":
        multiprocessing.Process(target=forever, name="loader").start()
    elif kept == "pipe":
        subprocess.Popen(["sleep", "10000"], stdout=sys.stdout, stderr=sys.stderr)
    elif kept == "crash":
        atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
    elif kept == "lock":  # nothing of Python can run: only the keeper can end it
        atexit.register(_hold_the_interpreter)
    return _ended(config, context)


def _ended(config, context):
    how = config.get("how", "return")
    if how == "raise":
        raise ValueError("a bad row")
    if how == "exit":
        sys.exit(config.get("code", 0))
    if how == "os._exit":
        os._exit(0)
    return {"rank": context.rank}


def _hold_the_interpreter():
    import ctypes

    ctypes.PyDLL(None).sleep(10_000)


def trains(config, context):
    """Make steps with a collective each; on the first attempt one rank hangs where told to."""
    import atexit
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from pipeline.data.prefetch import Prefetcher
    from pipeline.train.ranks.process_group import join_ranks, new_host_group
    from slurm_jobs.formats.records import heartbeat

    never = threading.Event()
    hangs = config["hangs"] if context.rank == 1 and context.attempt == 1 else ""

    def read_sample(number):
        if number == 5 and hangs == "loader":
            never.wait()
        return number

    class Loader(Prefetcher):
        number = 0

        def _submit_step(self):
            self.number += 1
            return [self._pool.submit(read_sample, self.number)]

    def lone_collective():
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.zeros(1), group=lonely)

    ranks = join_ranks(context, device_type="cpu", timeout_min=config.get("collective_s", 600) / 60)
    lonely = new_host_group(timeout_min=10)
    heartbeat.start_heartbeat(
        context.task_dir,
        context.rank,
        stall_timeout_min=config["stall_s"] / 60,
        collective_timeout_min=config.get("collective_s", 600) / 60,
    )
    pool = ThreadPoolExecutor(1)
    loader = Loader(pool, 1)
    for number in range(10):
        heartbeat.begin_steps()
        next(loader)
        if number == 5 and hangs == "collective":
            lone_collective()
        if number == 5 and hangs == "raise":
            atexit.register(never.wait)
            raise ValueError("a bad row")
        ranks.barrier()
        time.sleep(0.05)
        heartbeat.end_step(0.05)
        heartbeat.beat()
    heartbeat.end_steps()
    if hangs == "thread":
        threading.Thread(target=never.wait, name="uploader").start()
    pool.shutdown()
    return {"rank": context.rank}
