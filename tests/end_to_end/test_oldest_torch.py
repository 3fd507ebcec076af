"""The model, strategy and checkpoint tests in an environment with the oldest supported torch.

The environment stays in `build/oldest-torch` and is made again when what belongs in it changes. It
takes 8 GB of disk, as PyPI has CUDA builds alone; they run on a CPU. If
PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu is set, pip takes the build for CPUs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests.end_to_end.test_packages import CHECKOUT, PROJECT

TRAIN = PROJECT["optional-dependencies"]["train"]
(OLDEST,) = (match[1] for line in TRAIN if (match := re.match(r"torch>=([\d.]+),", line)))
FOLLOWS_TORCH = ("torch", "torchvision", "setuptools")
"""Their pins are those of another torch."""
TESTS = (
    "tests/pipeline/timing/test_compile_watch.py",
    "tests/pipeline/models",
    "tests/pipeline/train/checkpoints",
    "tests/pipeline/train/strategies",
    "tests/pipeline/train/strategy_checks",
    "tests/pipeline/train/optimizer/test_local_adamw.py",
    "tests/pipeline/train/training_data/test_staging.py",
)
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "jsonschema")
FREE_BYTES = 12e9
INSTALL_LIMIT_S = 3600
TESTS_LIMIT_S = 5400
_NO_INDEX = re.compile(r"connection broken by|ConnectionError|ReadTimeout|name resolution")
_PASSED = re.compile(r"(\d+) passed")


@pytest.fixture(scope="module")
def oldest_python() -> Path:
    """Return the interpreter of the environment; skip where it cannot be installed."""
    folder = CHECKOUT / "build" / "oldest-torch"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    pins = (CHECKOUT / "constraints.txt").read_text().splitlines()
    kept = [pin for pin in pins if re.split(r"[=;]", pin)[0] not in FOLLOWS_TORCH]
    # Of the project, not the project: what runs is this checkout.
    needs = [line for line in [*PROJECT["dependencies"], *TRAIN] if not line.startswith("torch>")]
    wanted = [f"torch=={OLDEST}.*", *needs, *TOOLS]
    content = "\n".join([sys.version, *wanted, *kept])
    if stamp.exists() and stamp.read_text() == content:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if shutil.disk_usage(folder).free < FREE_BYTES:
        not_here(f"{folder} needs {FREE_BYTES / 1e9:.0f} GB of free disk")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (folder / "pins.txt").write_text("\n".join(kept))
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
    ]
    code, text = finish([*pip, "-c", folder / "pins.txt", *wanted], os.environ, INSTALL_LIMIT_S)
    if code is None or (code != 0 and _NO_INDEX.search(text)):
        not_here(f"torch {OLDEST} could not be downloaded: {(text.splitlines() or [''])[-1]}")
    assert code == 0, text[-3000:]
    stamp.write_text(content)
    return python


def not_here(reason: str) -> NoReturn:
    """Skip with the reason, or fail where all tests have to run."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def finish(
    command: Sequence[str | Path], environment: Mapping[str, str], limit_s: float
) -> tuple[int | None, str]:
    """Return the exit code, None after the limit, and the output; end what is left of it."""
    process = subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, f"{output}\nstill running after {limit_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output


@pytest.mark.slow
def test_models_strategies_and_checkpoints_pass_with_the_oldest_torch(
    oldest_python: Path, tmp_path: Path
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    environment |= {"PYTHONPATH": str(CHECKOUT), "CUDA_VISIBLE_DEVICES": ""}
    version = "import torch; print(torch.__version__)"
    _, printed = finish([oldest_python, "-c", version], environment, 300)
    assert printed.startswith(f"{OLDEST}.")

    code, output = finish(
        [oldest_python, "-m", "pytest", "-q", "-ra", "-m", "not slow and not cluster",
         "-p", "no:cacheprovider", "--basetemp", tmp_path / "inner", *TESTS],
        environment, TESTS_LIMIT_S,
    )  # fmt: skip
    print(output)
    assert code == 0, output[-5000:]
    reasons = re.findall(r"^SKIPPED .*$", output, re.MULTILINE)
    assert all(f"torch {OLDEST}" in line or "Python 3.10" in line for line in reasons), reasons
    assert len(reasons) < int(_PASSED.findall(output)[-1]) / 5
