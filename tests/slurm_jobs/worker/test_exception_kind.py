"""Kinds of the exceptions that end a rank: real ones, raised where they are raised."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from slurm_jobs.base.errors import (
    DeviceMemoryError,
    PackingLeakError,
    StageConfigError,
    StageDataError,
    StageError,
)
from slurm_jobs.base.files import read_json
from slurm_jobs.worker.call import find_function
from slurm_jobs.worker.exception_kind import kind_of
from slurm_jobs.worker.rank import error_path, write_error


def raised_by(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError


def call_without_argument() -> None:
    json.dumps()  # type: ignore[call-arg]


def read_missing_name() -> None:
    missing_name  # type: ignore[name-defined] # noqa: B018, F821


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def out_of_device_memory() -> None:
    message = "CUDA out of memory"
    raise torch.OutOfMemoryError(message)


def wrapped(function: Callable[[], object], wrapper: type[Exception]) -> Callable[[], None]:
    def call() -> None:
        try:
            function()
        except Exception as error:
            message = "it did not work"
            raise wrapper(message) from error

    return call


def fail(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (call_without_argument, "wrong code"),
        (read_missing_name, "wrong code"),
        (lambda: compile("def", "own.py", "exec"), "wrong code"),
        (lambda: __import__("no_such_package_here"), "missing package"),
        (lambda: find_function("no_such_module_here:run"), "missing package"),
        (lambda: find_function("json:no_such_function"), "wrong code"),
        (lambda: int("x"), "exception"),
        (lambda: {}["image"], "exception"),
        (full_disk, "full disk"),
        (wrapped(full_disk, StageError), "full disk"),
        (lambda: bytearray(1 << 62), "host memory"),
        (out_of_device_memory, "device memory"),
        (wrapped(out_of_device_memory, RuntimeError), "device memory"),
        (wrapped(call_without_argument, ValueError), "exception"),
        (fail(StageError("x")), "exception"),
        (fail(StageConfigError("x")), "wrong config"),
        (fail(StageDataError("x")), "wrong data"),
        (fail(DeviceMemoryError("x")), "device memory"),
        (fail(PackingLeakError("x")), "packing leak"),
    ],
)
def test_an_exception_has_the_kind_of_its_class_or_cause(
    function: Callable[[], object], kind: str
) -> None:
    assert kind_of(raised_by(function)) == kind


class OldError(StageConfigError):
    """Error of a user's own, whose initialiser is not that of its base."""

    def __init__(self, path: str, why: str) -> None:
        Exception.__init__(self, f"{path}: {why}")


def with_odd_kind() -> StageError:
    error = StageError("x")
    error.kind = ["x"]  # type: ignore[misc, assignment]
    return error


@pytest.mark.parametrize(
    ("error", "kind", "resumes"),
    [
        (OldError("/data/x", "is broken"), "wrong config", []),
        (StageConfigError("/data/x", "is broken"), "wrong config", []),
        (with_odd_kind(), "exception", []),
        (StageError("x", resumes=[("--set", "a.b=1"), ("--again", "STAGE")]), "exception", [1, 2]),
        (StageError("x", resumes=[("--set", 3)]), "exception", []),  # type: ignore[list-item]
        (StageError("x", resumes=[("--set", "a.path=/d/\u00a0b")]), "exception", []),
        (StageError("x", resumes=[("--set",), ("--limit", "3")]), "exception", []),
        (StageError("x", resumes=3), "exception", []),  # type: ignore[arg-type]
        (ValueError("x"), "exception", []),
    ],
)
def test_what_users_raise_is_recorded_and_read_whatever_it_is(
    tmp_path: Path, error: Exception, kind: str, resumes: list[int]
) -> None:
    write_error(tmp_path, 0, error)
    recorded = read_json(error_path(tmp_path, 0))
    assert recorded["kind"] == kind
    assert len(recorded["resumes"]) == len(resumes)
    assert recorded["message"]


MEMBER = """\
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from slurm_jobs.worker.exception_kind import kind_of
rank, folder = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
dist.barrier()
(folder / f"ready-{rank}").touch()
while not (folder / f"ready-{1 - rank}").exists():
    time.sleep(0.01)
if rank == 1:
    os._exit(1)
try:
    {call}
except Exception as error:
    print(kind_of(error), flush=True)
os._exit(0)  # Gloo may abort the process while Python ends, because its peer is gone
"""


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("dist.all_reduce(torch.zeros(3))", "collective"),
        ("dist.barrier()", "collective"),
        ("dist.recv(torch.zeros(3), src=1)", "collective"),
        ("dist.broadcast_object_list([None], src=1)", "collective"),
        ("dist.all_reduce('no tensor')", "wrong code"),
    ],
)
def test_a_collective_that_misses_its_peer_has_its_own_kind(
    tmp_path: Path, call: str, kind: str
) -> None:
    """Gloo raises a plain RuntimeError, so the place where it was raised decides."""
    program = MEMBER.replace("{call}", call)
    commands = [[sys.executable, "-c", program, str(rank), str(tmp_path)] for rank in (0, 1)]
    gone = subprocess.Popen(commands[1])
    try:
        printed = subprocess.run(
            commands[0], capture_output=True, text=True, check=True, timeout=120
        )
    finally:
        gone.kill()
        gone.wait()
    assert printed.stdout.split("\n")[0] == kind
