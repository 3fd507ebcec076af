"""A clock that stands still until a test moves it."""

from __future__ import annotations

import pytest

from pipeline.timing import compile_watch, recorder, span_log, thread_clock

_START_UNIX_S = 1_700_000_000.0


class FakeClock:
    """Stands in for the module `time` in the recorder of steps, spans and compilations."""

    def __init__(self) -> None:
        self._now_ns = 0

    def perf_counter_ns(self) -> int:
        return self._now_ns

    def time(self) -> float:
        return _START_UNIX_S + self._now_ns / 1e9

    def advance(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The recorder's clock from now on; call it before the recorder is made."""
    clock = FakeClock()
    for module in (recorder, span_log, compile_watch, thread_clock):
        monkeypatch.setattr(module, "time", clock)
    return clock
