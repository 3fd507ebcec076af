"""Stages that start processes in each way that Python and its libraries offer.

Every way is a context manager, whose value does one round of work in the children and returns the
sum of 0 to 7. The end of the block ends the children.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time


def work(number):
    """Take a moment, as real work does."""
    time.sleep(0.02)
    return number


def _pool(method):
    @contextlib.contextmanager
    def way():
        with multiprocessing.get_context(method).Pool(4) as pool:
            yield lambda: sum(pool.map(work, range(8), 1))

    return way


@contextlib.contextmanager
def _terminated():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10_000,))
    process.start()
    yield lambda: sum(map(work, range(8)))
    process.terminate()
    process.join()


@contextlib.contextmanager
def _executor():
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        yield lambda: sum(pool.map(work, range(8)))


@contextlib.contextmanager
def _joblib():
    from joblib import Parallel, delayed

    with Parallel(n_jobs=2) as parallel:
        yield lambda: sum(parallel(delayed(work)(number) for number in range(8)))


@contextlib.contextmanager
def _loader():
    from torch.utils.data import DataLoader

    loader = DataLoader(range(8), num_workers=2, collate_fn=sum, persistent_workers=True)
    yield lambda: sum(loader)


@contextlib.contextmanager
def _program():
    program = subprocess.Popen(["sleep", "10000"])
    code = "import sys, time; time.sleep(0.1); print(sum(range(8)))"
    yield lambda: int(subprocess.check_output([sys.executable, "-c", code]))
    program.terminate()
    program.wait()


@contextlib.contextmanager
def _forking_library():
    def library():
        reading, writing = os.pipe()
        if not (pid := os.fork()):
            os.write(writing, str(sum(map(work, range(8)))).encode())
            while True:
                time.sleep(0.05)
        os.close(writing)
        answer = int(os.read(reading, 9))
        os.close(reading)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        return answer

    yield library


def _round_with_a_pool(connection):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        while True:
            connection.send(sum(pool.map(work, range(8), 1)))


@contextlib.contextmanager
def _children_of_children():
    fork = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=_round_with_a_pool, args=(sending,))
    process.start()
    yield receiving.recv
    process.terminate()
    process.join()


WAYS = {
    "pool-fork": _pool("fork"),
    "pool-spawn": _pool("spawn"),
    "pool-forkserver": _pool("forkserver"),
    "process-terminate": _terminated,
    "executor": _executor,
    "joblib": _joblib,
    "loader": _loader,
    "subprocess": _program,
    "forking-library": _forking_library,
    "children-of-children": _children_of_children,
}


def run(config, context):
    """Do rounds until the first attempt is asked to stop; the second one does a single round."""
    from slurm_jobs.base.errors import StageStoppedError
    from slurm_jobs.base.processes.stop_requests import stop_requested

    with WAYS[config["way"]]() as work_round:
        total = work_round()
        (context.output_dir / f"at-work-{context.rank}").touch()
        while context.attempt == 1 and not stop_requested():
            total = work_round()
    if context.attempt == 1:
        raise StageStoppedError(f"the last round gave {total}")
    return {"sum": total}
