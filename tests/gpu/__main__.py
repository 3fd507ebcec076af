"""`python -m tests.gpu`: run the cases, write their results, print a table.

    python -m tests.gpu [--device cuda|cpu] [--out FOLDER] [--only NAME ...] [--short]
    python -m tests.gpu --page docs/guides/clusters/gpu.md --from FOLDER/results.json

`results.json` is written again after each case. The exit code is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import importlib
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from slurm_jobs.schedulers.rank_variables import default_variables
from tests.gpu import page, wheels
from tests.gpu.suite import Case
from tests.gpu.work import CaseResult, NotPossibleError, Work, missing_package, read_result

ROOT = Path(__file__).parents[2]
BUDGET_S = 570.0
"""Of all cases together on a GPU; a lent machine may give ten minutes to a command."""
CPU_PATIENCE = 30.0
"""Factor of the cases' limits on a CPU, which others may use at the same time; it has no budget."""
LANES = 5
"""Cases at the same time on a GPU, but for those that measure it: most of their time is the host's,
for imports and launches."""
_running: set[subprocess.Popen[bytes]] = set()
_VERSIONS = ("torch", "transformers", "accelerate", "peft", *wheels.PACKAGES)
_DUMP_S = 1.0
"""How long a case that is out of time gets to write where its threads are."""


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these cases alone")
    parser.add_argument("--short", action="store_true", help="do the least in each case")
    parser.add_argument("--budget-s", type=float, help=f"of all cases ({BUDGET_S:g} on a GPU)")
    parser.add_argument(
        "--patience",
        type=float,
        metavar="FACTOR",
        help=f"of the cases' time limits (1 on a GPU, {CPU_PATIENCE:g} on a CPU)",
    )
    parser.add_argument("--lanes", type=int, help=f"cases at a time (cuda: {LANES}, cpu: 1)")
    parser.add_argument("--wheels", type=Path, default=wheels.DEFAULT_FOLDER)
    parser.add_argument("--suite", default="tests.gpu.suite", help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, help="write the table of --from into this page")
    parser.add_argument(
        "--from",
        dest="sources",
        type=Path,
        nargs="+",
        help="results.json of a run, or of several: of each case the last one counts",
    )
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        _run_case(options.case)
    elif options.page is not None:
        reports = [json.loads(source.read_text()) for source in options.sources]
        page.write(options.page, page.merged(reports))
    else:
        sys.exit(_run_all(options))


def _run_all(options: argparse.Namespace) -> int:
    cases: Sequence[Case] = importlib.import_module(options.suite).CASES
    if options.only:
        unknown = sorted(set(options.only) - {case.name for case in cases})
        if unknown:
            names = " or ".join(f"`{name}`" for name in unknown)
            listed = "\n".join(f"  {case.name}" for case in cases)
            sys.exit(f"--only: there is no case {names}. The cases are:\n{listed}")
        cases = [case for case in cases if case.name in options.only]
    if options.budget_s is None:
        options.budget_s = BUDGET_S if options.device == "cuda" else math.inf
    if options.patience is None:
        options.patience = CPU_PATIENCE if options.device == "cpu" else 1.0
    if options.lanes is None:
        options.lanes = LANES if options.device == "cuda" else 1
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "log.txt").unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cases are ended, too
    began, lock = time.monotonic(), threading.Lock()
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-gpu-") as scratch:
        root = Path(scratch)
        unpacked = wheels.unpack(options.wheels, root / "packages")
        results: dict[int, CaseResult] = {}
        report = {**_describe(options, root, unpacked), "cases": []}

        def run(number: int) -> None:
            case = cases[number]
            left_s = options.budget_s - (time.monotonic() - began)
            limit_s = case.limit_s * options.patience
            if left_s > 0:
                result = _run_one(case, number, options, root, min(limit_s, left_s))
            else:
                reason = f"{page.NOT_RUN}the {options.budget_s:g} s of all cases were used up"
                result = CaseResult(
                    name=case.name, status="not possible here", seconds=0.0, reason=reason
                )
            with lock:
                results[number] = result
                report["cases"] = [results[key] for key in sorted(results)]
                report["seconds"] = round(time.monotonic() - began, 1)
                print(page.line(result), flush=True)
                _write(options.out / "results.json", report)

        for numbers in _turns(cases):
            with ThreadPoolExecutor(options.lanes) as lanes:
                try:
                    list(lanes.map(run, numbers))
                except BaseException:
                    lanes.shutdown(wait=False, cancel_futures=True)
                    for process in [*_running]:
                        _kill_group(process)
                    raise
    print(f"\n{page.table(report)}\n\n{options.out / 'results.json'}; output of the cases: log.txt")
    return int(any(result.status == "failed" for result in report["cases"]))


def _turns(cases: Sequence[Case]) -> list[list[int]]:
    """Return the numbers of cases that may run at the same time, in the order of the suite."""
    turns: list[list[int]] = []
    for number, case in enumerate(cases):
        if turns and not case.is_alone and not cases[number - 1].is_alone:
            turns[-1].append(number)
        else:
            turns.append([number])
    return turns


def _describe(options: argparse.Namespace, root: Path, unpacked: Sequence[str]) -> dict[str, Any]:
    versions = {}
    for name in _VERSIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    for name in unpacked:
        for info in (root / "packages").glob(f"{name}-*.dist-info"):
            versions[name] = f"{info.name.split('-')[1].removesuffix('.dist')} (carried)"
    return {
        "date": datetime.now(tz=timezone.utc).strftime("%Y-%m-%d"),
        "device": options.device,
        "gpu": _gpu_name() if options.device == "cuda" else None,
        "short": options.short,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "versions": versions,
    }


def _gpu_name() -> str | None:
    fields = "--query-gpu=name,driver_version,memory.total"
    command = ["nvidia-smi", fields, "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()
    return None


def _run_one(
    case: Case, number: int, options: argparse.Namespace, root: Path, limit_s: float
) -> CaseResult:
    """Run a case in its own process, and end what is left of it."""
    folder, shared = root / f"case-{number}", root / "shared"
    folder.mkdir()
    shared.mkdir(exist_ok=True)
    record, end_file = folder / "record.jsonl", folder / "end.json"
    asked = {
        "function": case.function,
        "device": options.device,
        "folder": str(folder),
        "shared": str(shared),
        "record": str(record),
        "end": str(end_file),
        "is_short": options.short,
    }
    packages = [str(root / "packages"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        **_rank_variables(options.device, 1 if case.is_alone else options.lanes),
        "PYTHONPATH": os.pathsep.join(filter(None, packages)),
    }
    began, log, own_log = time.monotonic(), options.out / "log.txt", folder / "log.txt"
    with own_log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu", "--case", json.dumps(asked)],
            env=env, cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        _running.add(process)
        try:
            code: int | None = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            code = None
            _end(process)
        finally:
            _kill_group(process)
            _running.discard(process)
    with log.open("ab") as stream:
        stream.write(f"\n== {case.name}\n".encode() + own_log.read_bytes())  # in one piece
    end: dict[str, Any] = json.loads(end_file.read_text()) if end_file.exists() else {}
    if code is None:
        end = {"error": f"still running after {limit_s:.0f} s; see {log.name} for where"}
    elif not end:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        end = {"error": f"its process ended with {how}"}
    return read_result(case.name, record, end, time.monotonic() - began)


def _rank_variables(device: str, num_lanes: int) -> dict[str, str]:
    """Return what the supervisor sets for the only rank of a stage with a GPU.

    Lanes share the cores: threads of several cases on each core slow sums on the CPU tenfold.
    """
    if device != "cuda":
        return {}
    num_threads = max(1, len(os.sched_getaffinity(0)) // num_lanes)
    variables = default_variables(
        os.environ.keys(),
        num_threads=num_threads,
        num_ranks=1,
        num_gpus=1,
        flight_prefix="",
        interface=None,
    )
    return {"SLURM_CPUS_PER_TASK": str(num_threads), **variables}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have all threads write where they are, then give up."""
    process.send_signal(signal.SIGUSR1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_DUMP_S)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run_case(asked: dict[str, Any]) -> None:
    """Run one case in this process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    module, _, function = asked["function"].partition(":")
    work = Work(
        device=asked["device"],
        folder=Path(asked["folder"]),
        shared=Path(asked["shared"]),
        record=Path(asked["record"]),
        is_short=asked["is_short"],
    )
    end: dict[str, str] = {}
    try:
        getattr(importlib.import_module(module), function)(work)
    except NotPossibleError as error:
        end = {"not_possible": str(error)}
    except ImportError as error:
        traceback.print_exc()
        missing = missing_package(error)
        end = {"not_possible": f"the package {missing} is missing"} if missing else _error(error)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the other cases go on
        traceback.print_exc()
        end = _error(error)
    Path(asked["end"]).write_text(json.dumps({"ended": True, **end}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a hung CUDA or NCCL thread must not turn a result into a hang


def _error(error: BaseException) -> dict[str, str]:
    first = str(error).strip().splitlines() or [""]
    return {"error": f"{type(error).__name__}: {first[0][:300]}"}


def _write(path: Path, report: dict[str, Any]) -> None:
    values = {**report, "cases": [dataclasses.asdict(result) for result in report["cases"]]}
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(values, indent=1) + "\n")
    scratch.replace(path)


if __name__ == "__main__":
    main()
