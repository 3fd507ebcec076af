"""Stage that `doctor` runs on nodes: facts about Python, torch, files and the network."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pipeline.nodes.measures import cgroup_quota, find_gpus
from pipeline.train.host_memory import cgroup_limits
from slurm_jobs.shared.errors import StageConfigError, StageStoppedError
from slurm_jobs.shared.files import Progress, make_private_dir, read_json, write_json_atomic
from slurm_jobs.shared.machine import Mount, host_facts, mount_of, python_facts
from slurm_jobs.shared.node_records import (
    SIGNAL_NAME,
    AllReduceFacts,
    CardFacts,
    ClockFacts,
    FolderFacts,
    NodeFacts,
    ProgramFacts,
    TorchFacts,
    answer_name,
    drill_name,
    facts_name,
    hello_name,
)
from slurm_jobs.shared.process import ask_together, dies_with_parent, end_requested, stop_requested
from slurm_jobs.shared.records import TaskContext

# Facts about PyTorch and the cards, from a process that may crash or hang.


LIMIT_S = 90.0
"""A slow file system must read thousands of files; the job's time limit comes later."""
MARK = "slurm-jobs doctor: "
"""Prefix of the answer's line: libraries print other lines."""
_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from pipeline.nodes.doctor_stage import main; main()"
)


def ask_torch(limit_s: float = LIMIT_S) -> TorchFacts:
    """Import PyTorch in this Python, in a separate process, and return its facts."""
    values, problem = ask_python(_CODE, sys.path, limit_s=limit_s)
    if values is None:
        return TorchFacts(problem=f"importing torch: {problem}")
    values["cards"] = tuple(CardFacts(**card) for card in values["cards"])
    return TorchFacts(**values)


def ask_python(code: str, words: Sequence[str], *, limit_s: float) -> tuple[Any, str]:
    """Run code in this Python, in a separate process that may crash or hang.

    Args:
        code: Prints `MARK` and its answer as JSON.
        words: Its `sys.argv[1:]`.
        limit_s: Time after which the process is killed.

    Returns:
        The answer, or None and why there is none.
    """
    answer = ask_together(
        {"python": [sys.executable, "-c", code, *words]},
        limit_s=limit_s,
        max_bytes=_MOST_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )["python"]
    line = next((li for li in answer.text.splitlines() if li.startswith(MARK)), "")
    if not line:
        return None, answer.problem or "it printed nothing"
    return json.loads(line.removeprefix(MARK)), ""


def main() -> None:
    """Print the facts."""
    print(MARK + json.dumps(asdict(_torch_facts())), flush=True)


def _torch_facts() -> TorchFacts:
    start_s = time.monotonic()
    try:
        import torch
    except ModuleNotFoundError as error:
        return TorchFacts(problem=f"the package {error.name} is missing in {sys.executable}")
    except (ImportError, OSError) as error:  # a missing CUDA library
        return TorchFacts(problem=f"importing torch: {_first_line(error)}")
    import_s = time.monotonic() - start_s
    cuda, nccl, cuda_problem = str(torch.version.cuda or ""), "", ""
    torch_cuda: Any = torch.cuda  # not all of it has types
    cards: list[CardFacts] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cuda:
            with suppress(RuntimeError, AttributeError):  # a build without it
                nccl = ".".join(map(str, torch_cuda.nccl.version()))
        try:
            if torch.cuda.is_available():
                _read_cards(cards)
            elif cuda:
                torch_cuda.init()
            else:
                cuda_problem = f"torch {torch.__version__} is a build without CUDA"
        except RuntimeError as error:
            cuda_problem = _first_line(error)
    cuda_problem = cuda_problem or next((_first_line(w.message) for w in caught), "")
    return TorchFacts(
        version=str(torch.__version__),
        cuda=cuda,
        nccl=nccl,
        import_s=import_s,
        cards=tuple(cards),
        cuda_problem="" if cards else cuda_problem,
    )


def _read_cards(cards: list[CardFacts]) -> None:
    """Append the cards one by one, so that those before a failing one are kept."""
    import torch

    # Only here: the preflight's modules import transformers, which takes as long again.
    from pipeline.train.device import code_problem, read_device

    for index in range(torch.cuda.device_count()):
        facts = read_device(torch.device("cuda", index))
        capability = ".".join(map(str, facts.capability or ()))
        problem = code_problem(facts) or ""
        cards.append(CardFacts(name=facts.name, capability=capability, problem=problem))


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def nccl_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables of NCCL and the model hub on this node; never tokens."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_ENDPOINT", "TORCH_HOME")
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("NCCL_") or name in names
    }


# All-reduce over gloo between the nodes of a job, which a training needs at its start.
#
# Each node runs it in a separate process, because it may hang: gloo binds to the address of the
# host's name, unless GLOO_SOCKET_IFNAME names an interface, and waits if the others cannot reach
# that address.


ALL_REDUCE_LIMIT_S = 90.0
"""Mostly for importing torch from a slow file system."""
_GROUP_LIMIT_S = 45.0
_ALL_REDUCE_CODE = """
import datetime, json, sys, time
address, rank, size, limit_s, mark = sys.argv[1:6]
try:
    import torch
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=float(limit_s))
    dist.init_process_group(
        "gloo", init_method=address, rank=int(rank), world_size=int(size), timeout=limit
    )
    dist.all_reduce(torch.zeros(1))
    value = torch.full((1,), float(rank))
    start_s = time.monotonic()
    dist.all_reduce(value)
    seconds = time.monotonic() - start_s
    if value.item() != sum(range(int(size))):
        raise ValueError(f"the sum over ranks is {value.item()}")
    print(mark + json.dumps(seconds), flush=True)
    dist.barrier()
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def all_reduce(context: TaskContext, limit_s: float = ALL_REDUCE_LIMIT_S) -> AllReduceFacts:
    """Reduce one number over the nodes of the job, or return why that failed."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if context.num_nodes == 1:
        return AllReduceFacts(interface=interface, problem="the job has one node")
    host = f"[{context.main_addr}]" if ":" in context.main_addr else context.main_addr
    address = f"tcp://{host}:{context.main_port}"
    group_limit_s = min(_GROUP_LIMIT_S, limit_s)
    words = [address, context.rank, context.num_ranks, group_limit_s, MARK]
    seconds, problem = ask_python(_ALL_REDUCE_CODE, [str(word) for word in words], limit_s=limit_s)
    return AllReduceFacts(interface=interface, seconds=seconds, problem=problem)


# Counter that is saved at a stop, and continues after the requeue.
#
# Nothing is simulated: the signal is the scheduler's, near the time limit; the supervisor
# forwards it, has the job requeued, and starts this again.


_STEP_S = 0.1
_LEFT_S = 3.0
"""Before the time limit: a later signal would leave no time to save."""


def run_drill(_config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Count until a stop, save, and continue after the requeue; called on every rank.

    Raises:
        StageStoppedError: a stop was requested, and the counter saved.
        StageConfigError: the time limit has come without a signal; or the saved counter is
            missing.
    """
    make_private_dir(context.output_dir)
    path = context.output_dir / drill_name(context.rank)
    start = {"attempt": context.attempt, "unix_s": time.time(), "node": context.node_name}
    if context.attempt > 1:
        try:
            saved = read_json(path)
        except (FileNotFoundError, json.JSONDecodeError) as error:
            message = f"what the first attempt saved is gone: {error}"
            raise StageConfigError(message) from error
        if "saved_unix_s" not in saved:
            message = "the first attempt saved nothing before it ended"
            raise StageConfigError(message)
        count = int(saved["count"]) + 1
        write_json_atomic(path, {**saved, "returned": start, "count": count})
        return {"count": count}
    count = 0
    write_json_atomic(path, {"started": start, "count": count})
    deadline_unix_s = context.deadline_unix_s
    total_s = 0 if deadline_unix_s is None else deadline_unix_s - time.time()
    progress = Progress(context.task_dir, "s", max(1, round(total_s)))
    while not stop_requested():
        if deadline_unix_s is not None and time.time() > deadline_unix_s - _LEFT_S:
            message = "the time limit has come, and no signal before it"
            raise StageConfigError(message)
        time.sleep(_STEP_S)
        count += 1
        if count % 10 == 0:
            progress.update(min(round(count * _STEP_S), progress.total), detail="until the signal")
    signal_name = "SIGTERM" if end_requested() else "SIGUSR2"
    record = {"started": start, "asked_unix_s": time.time(), "by": signal_name, "count": count}
    write_json_atomic(path, record)
    write_json_atomic(path, {**record, "saved_unix_s": time.time()})
    message = f"the counter is {count}"
    raise StageStoppedError(message)


# Clock comparison with the login node, by files of the run: a question, and its answer.
#
# Neither machine needs a connection to the other. A file that is seen was written before, so each
# direction bounds the difference of the clocks, however late the file system shows a file. The
# bounds are kept, not only their middle.


_EXCHANGE_POLL_S = 0.05


class Question:
    """Sends the question to the login node in a thread, while the node is examined."""

    def __init__(self, folder: Path, rank: int, patience_s: float) -> None:
        self._folder, self._rank, self._patience_s = folder, rank, patience_s
        self.clock: ClockFacts | None = None
        self.both_ways_s: float | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the answer, or until the time is over."""
        self._thread.join(self._patience_s + 1.0)

    def _ask(self) -> None:
        before_s, start_s = time.time(), time.monotonic()
        write_json_atomic(self._folder / hello_name(self._rank), {"unix_s": before_s})
        answer = _wait_for_json(self._folder / answer_name(self._rank), self._patience_s)
        if answer is not None:
            self.clock = ClockFacts(
                least_s=answer["written_unix_s"] - time.time(),
                most_s=answer["seen_unix_s"] - before_s,
            )
            self.both_ways_s = time.monotonic() - start_s


def signal_was_sent(folder: Path, patience_s: float) -> tuple[bool | None, str]:
    """Return whether the login node had this job signalled; None and why if unknown."""
    answer = _wait_for_json(folder / SIGNAL_NAME, patience_s)
    if answer is None:
        return None, f"the login node sent none within {patience_s:g} s"
    return (None, answer["problem"]) if answer["problem"] else (True, "")


def _wait_for_json(path: Path, patience_s: float) -> dict[str, Any] | None:
    """Read a file as soon as it exists; None if it does not in time."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        with suppress(FileNotFoundError):
            values: dict[str, Any] = read_json(path)
            return values
        time.sleep(_EXCHANGE_POLL_S)
    return None


# Network test between the nodes of a job: clock differences, and delay of new files.
#
# The first node listens where a training's ranks would meet. Each other node requests its time,
# and waits for a file that it writes. Each message is a line of JSON.


_ROUNDS = 10
_MOST_LINE = 4096
_POLL_S = 0.002
FILE_PATIENCE_S = 20.0
CONNECT_PATIENCE_S = 30.0
"""srun starts the nodes' tasks within seconds of each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Met:
    """A node's measurements with the first node."""

    clock: ClockFacts | None = None
    file_s: float | None = None
    reason: str = ""


def meet(context: TaskContext) -> Met:
    """Connect, as the first node or as one of the others; report why if it is not possible."""
    if context.num_nodes == 1:
        return Met(reason="the job has one node")
    try:
        if context.rank == 0:
            deadline_s = time.monotonic() + CONNECT_PATIENCE_S + FILE_PATIENCE_S
            with socket.create_server(("", context.main_port)) as server:
                left = context.num_nodes - 1
                while left:
                    server.settimeout(max(0.1, deadline_s - time.monotonic()))
                    connection, _ = server.accept()
                    connection.settimeout(FILE_PATIENCE_S + 5.0)
                    with (
                        connection,
                        connection.makefile("rw") as stream,
                        suppress(OSError, ValueError),
                    ):
                        # otherwise it may be a port scanner
                        if _heard(stream).get("run") == context.run_id:
                            left -= 1
                            _serve(stream, context.output_dir)
            return Met(reason="it is the first node")
        with _connected(context) as connection, connection.makefile("rw") as stream:
            _say(stream, {"run": context.run_id})
            bounds = []  # of several rounds: the answer is between question and reply
            for _ in range(_ROUNDS):
                before_s = time.time()
                _say(stream, {"time": True})
                theirs = float(_heard(stream)["unix_s"])
                bounds.append((theirs - time.time(), theirs - before_s))
            clock = ClockFacts(
                least_s=max(least for least, _ in bounds), most_s=min(most for _, most in bounds)
            )
            path = context.output_dir / str(_heard(stream)["name"])
            path.exists()
            _say(stream, {"looked": True})
            _heard(stream)
            file_s, start_s = None, time.monotonic()
            while file_s is None and time.monotonic() - start_s < FILE_PATIENCE_S:
                if path.exists():
                    file_s = time.monotonic() - start_s
                else:
                    time.sleep(_POLL_S)
            _say(stream, {"seen": file_s is not None})
        reason = "" if file_s is not None else f"no file was seen within {FILE_PATIENCE_S:g} s"
        return Met(clock=clock, file_s=file_s, reason=reason)
    except (OSError, ValueError) as error:
        if context.rank == 0:
            return Met(reason=f"not all nodes came: {error}")
        where = f"{context.main_addr}:{context.main_port}"
        return Met(reason=f"the first node could not be reached at {where}: {error}")


def _serve(stream: TextIO, folder: Path) -> None:
    for _ in range(_ROUNDS):
        _heard(stream)
        _say(stream, {"unix_s": time.time()})
    name = f"late-{uuid.uuid4().hex}"
    _say(stream, {"name": name})
    _heard(stream)  # it has looked, and the file did not exist: its client may cache that
    (folder / name).write_text("seen\n")
    _say(stream, {"written": name})
    _heard(stream)
    (folder / name).unlink(missing_ok=True)


def _connected(context: TaskContext) -> socket.socket:
    """Try until the first node listens."""
    end_s = time.monotonic() + CONNECT_PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(
                (context.main_addr, context.main_port), timeout=5.0
            )
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.2)
            continue
        connection.settimeout(CONNECT_PATIENCE_S + FILE_PATIENCE_S)  # others may be served before
        return connection


def _say(stream: TextIO, value: dict[str, Any]) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def _heard(stream: TextIO) -> dict[str, Any]:
    """Read one message.

    Raises:
        ValueError: it is invalid.
        OSError: none in time, or the connection was closed.
    """
    line = stream.readline(_MOST_LINE)
    if not line:
        message = "the other end has closed the connection"
        raise ConnectionError(message)
    value = json.loads(line)
    if not isinstance(value, dict):
        message = "not a message of slurm-jobs"
        raise ValueError(message)  # noqa: TRY004 - what was heard is wrong, as with broken JSON
    return value


# Environment of a job on a node: folders, programs, limits, access to the model hub.


PROGRAM_LIMIT_S = 15.0
HUB = "https://huggingface.co"
HUB_LIMIT_S = 8.0
_MOST_BYTES = 200_000
_NO_LIMIT = 1 << 60
"""Version 1 of control groups reports no limit as a number of about this size."""
_MOUNTS = Path("/proc/self/mountinfo")
_SHM = "/dev/shm"  # noqa: S108 - it is looked at, and nothing is written


def folder_facts(folder: Path) -> FolderFacts:
    """Return file system and free space of a folder, and whether it is writable."""
    problem, mount = "", Mount("", "")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):  # the kernel does not report it
            mount = mount_of(_MOUNTS.read_text(), folder.resolve())
        status = os.statvfs(folder)
    except OSError as error:
        return FolderFacts(path=str(folder), problem=_os_error_text(error))
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        problem = _os_error_text(error)
    return FolderFacts(
        path=str(folder),
        kind=mount.kind,
        source=mount.source,
        free_bytes=status.f_bavail * status.f_frsize,
        total_bytes=status.f_blocks * status.f_frsize,
        problem=problem,
    )


def _os_error_text(error: OSError) -> str:
    return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")


def programs(job_id: str) -> dict[str, ProgramFacts]:
    """Return the Slurm programs of a job: `scontrol` for a requeue, `srun` for several ranks."""
    commands = {
        "scontrol": ("scontrol", "-o", "show", "job", job_id),
        "srun": ("srun", "--version"),
    }
    answers = ask_together(
        commands,
        limit_s=PROGRAM_LIMIT_S,
        max_bytes=_MOST_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )
    return {
        name: ProgramFacts(path=shutil.which(name) or "", problem=answer.problem)
        for name, answer in answers.items()
    }


def limits() -> dict[str, int | None]:
    """Return limits of files, locked memory, /dev/shm and the control group; None: no limit."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shm_bytes = 0
    with suppress(OSError):
        status = os.statvfs(_SHM)
        shm_bytes = status.f_bavail * status.f_frsize
    groups = cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return {
        "open_files": None if files == resource.RLIM_INFINITY else files,
        "locked_bytes": None if locked == resource.RLIM_INFINITY else locked,
        "shm_bytes": shm_bytes,
        "memory_bytes": min((size for _, size in groups if size < _NO_LIMIT), default=None),
    }


def has_infiniband(cards: Path = Path("/sys/class/infiniband")) -> bool:
    """Check whether the node has an InfiniBand card, whatever its name."""
    return cards.is_dir() and any(cards.iterdir())


def reach_hub(environment: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the seconds that the model hub took to answer, or None and why it did not."""
    answers: list[tuple[float | None, str]] = []
    url = environment.get("HF_ENDPOINT") or HUB
    if not url.startswith(("https://", "http://")):
        return None, f"HF_ENDPOINT is {url}, which is not an address"

    def request() -> None:
        start_s = time.monotonic()
        try:
            head = urllib.request.Request(url, method="HEAD")  # noqa: S310 - http and https alone
            with urllib.request.urlopen(head, timeout=HUB_LIMIT_S / 2):  # noqa: S310 - see above
                pass
        except urllib.error.HTTPError:  # it answered, even if only with a refusal
            pass
        except (OSError, ValueError) as error:
            answers.append((None, f"{url}: {getattr(error, 'reason', error)}"))
            return
        answers.append((time.monotonic() - start_s, ""))

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(HUB_LIMIT_S)  # a name look-up has no time limit
    return answers[0] if answers else (None, f"{url}: no answer in {HUB_LIMIT_S:g} s")


def gpu_numa_nodes(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[int, ...]:
    """Return the NUMA node of each of NVIDIA's GPUs, in the order of their PCI addresses.

    -1 where the firmware does not say.
    """
    nodes = []
    for device in sorted(devices.glob("*")):
        with suppress(OSError, ValueError):
            is_gpu = (device / "class").read_text().startswith(("0x0300", "0x0302"))
            if is_gpu and (device / "vendor").read_text().strip() == "0x10de":
                nodes.append(int((device / "numa_node").read_text()))
    return tuple(nodes)


# Examines one node of a job, once on each; the command on the login node judges the findings.


T = TypeVar("T")

_SIGNAL_S = 10.0
"""Limit from the login node's report that it sent the signal until its arrival."""


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Examine this node, and write the findings."""
    make_private_dir(context.output_dir)
    patience_s = float(config["patience_s"])
    question = Question(context.output_dir, context.rank, patience_s)
    met = _timed("the other nodes", lambda: meet(context))  # they have just been started together
    reduced = None
    if context.num_nodes > 1:
        reduced = _timed("an all-reduce", lambda: all_reduce(context))
    python = python_facts(sys.path)
    gpus, measured = _timed("GPUs", find_gpus)
    hub_s, hub_problem = _timed("the model hub", lambda: reach_hub(os.environ))
    torch = _timed("torch", ask_torch)
    shared = folder_facts(context.output_dir)
    _timed("the login node", question.wait)
    signalled, signal_reason = _timed("a signal", lambda: _signal(context, patience_s))
    facts = NodeFacts(
        node=context.node_name,
        rank=context.rank,
        host=host_facts()["name"],
        python=str(python["version"]),
        executable=str(python["executable"]),
        packages=python["packages"],
        torch=torch,
        gpus=gpus,
        gpus_reason=measured.reasons.get("gpu", ""),
        driver=", ".join(measured.details.get("gpu", {}).get("drivers", ())),
        local=folder_facts(context.node_local_dir),
        shared=shared,
        programs=programs(os.environ["SLURM_JOB_ID"]) if "SLURM_JOB_ID" in os.environ else {},
        limits=limits(),
        cores=cgroup_quota(),
        num_cores=len(os.sched_getaffinity(0)),
        has_infiniband=has_infiniband(),
        environment=nccl_variables(os.environ),
        hub_s=hub_s,
        hub_problem=hub_problem,
        login=question.clock,
        login_reason="" if question.clock else f"it did not answer within {patience_s:g} s",
        login_file_s=question.both_ways_s,
        first=met.clock,
        first_reason=met.reason,
        file_s=met.file_s,
        signalled=signalled,
        signal_reason=signal_reason,
        all_reduce=reduced,
        gpu_numa_nodes=gpu_numa_nodes(),
    )
    write_json_atomic(context.output_dir / facts_name(context.rank), asdict(facts))
    return {"node": facts.node}


def _timed(what: str, look: Callable[[], T]) -> T:
    """Call `look`, and log how long it took."""
    start_s = time.monotonic()
    result = look()
    print(f"{what}: {time.monotonic() - start_s:.1f} s", flush=True)
    return result


def _signal(context: TaskContext, patience_s: float) -> tuple[bool | None, str]:
    """Return whether SIGUSR2 came through the job's batch process to this rank."""
    if stop_requested():
        return True, ""
    sent, reason = signal_was_sent(context.output_dir, patience_s)
    if sent is None:
        return None, reason
    end_s = time.monotonic() + _SIGNAL_S
    while time.monotonic() < end_s:
        if stop_requested():
            return True, ""
        time.sleep(0.05)
    return False, f"it was sent to the job, and did not come within {_SIGNAL_S:g} s"
