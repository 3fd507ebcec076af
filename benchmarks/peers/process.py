"""The child processes of the benchmark, one per peer, in the Python that has its library."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]


ANSWER_WITHIN_S = 300
"""A reader whose worker died may wait for it forever."""


class PeerFailedError(Exception):
    """Error that a child reported."""


def python_of(module: str) -> str:
    """Return the interpreter for a peer: `BENCH_PYTHON_MODULE`, else this one."""
    return os.environ.get(f"BENCH_PYTHON_{module.upper()}", sys.executable)


class PeerProcess:
    """A running `benchmarks.peers.child`. Close it, or use it in a `with`."""

    def __init__(self, module: str, log: Path) -> None:
        """Start the process; the peer's output goes to `log`."""
        self.module = module
        self._log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [python_of(module), "-m", "benchmarks.peers.child", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,  # so that its workers end with it
            )

    def hello(self) -> dict[str, Any]:
        """Return the name and version of the peer.

        Raises:
            PeerFailedError: it is not installed or cannot be imported.
        """
        return self._read()

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the child's answer to a question.

        Raises:
            PeerFailedError: the child failed, with its reason.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            message = f"{self.module} exited; see {self._log}"
            raise PeerFailedError(message) from error
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_WITHIN_S)[0]:
            self._kill()
            message = f"no answer within {ANSWER_WITHIN_S} s; see {self._log}"
            raise PeerFailedError(message)
        line = self._process.stdout.readline()
        if not line:
            message = f"{self.module} exited; see {self._log}"
            raise PeerFailedError(message)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailedError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process and its workers."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
