"""Observer of what torch compiles during a training."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler

from slurm_jobs.formats.records.activity import doing

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)


class CompileWatch:
    """Observer of what torch compiles inside a `with` block: recorded separately, and logged.

    torch compiles a function at its first call, and again for unforeseen inputs; the backward pass
    at its first run.
    """

    def __init__(
        self, set_apart: Callable[[int], None], *, num_expected: int, is_main: bool
    ) -> None:
        """Prepare to watch.

        `set_apart` takes the nanoseconds of each compilation. More forward passes than
        `num_expected` cause a warning. Only the rank that `is_main` logs.
        """
        self._set_apart = set_apart
        self._num_expected = num_expected
        self._is_main = is_main
        self._began_ns = 0
        self._compiling = contextlib.ExitStack()
        self._num_forward = 0
        self._total_ns = 0

    def _begin(self, _: CallbackArgs) -> None:
        self._compiling.enter_context(doing("compilation"))  # longer than a step's stall limit
        self._began_ns = time.perf_counter_ns()

    def _end(self, args: CallbackArgs) -> None:
        spent_ns = time.perf_counter_ns() - self._began_ns
        self._compiling.close()
        self._total_ns += spent_ns
        self._set_apart(spent_ns)
        is_forward = args.callback_trigger == CallbackTrigger.DYNAMO
        self._num_forward += is_forward
        if not self._is_main:
            return
        log.info(
            "compiled a layer's %s pass in %.1f s, %.1f s in all",
            "forward" if is_forward else "backward", spent_ns / 1e9, self._total_ns / 1e9,
        )  # fmt: skip
        if is_forward and self._num_forward == self._num_expected + 1:
            log.warning(
                "layers have been compiled more than %d times: their inputs change in a way "
                "that needs a new compilation each time. TORCH_LOGS=recompiles in the stage's "
                "`env` shows the reason; if it continues, steps are faster without `compile`",
                self._num_expected,
            )

    def __enter__(self) -> Self:
        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)
        return self

    def __exit__(self, *_error: object) -> None:
        callback_handler.remove_start_callback(self._begin)
        callback_handler.remove_end_callback(self._end)
