"""Recording of a rank's time; the report judges it."""

from pipeline.timing.spans import SpanLog
from pipeline.timing.steps import StepCounts, StepOutcome, StepRecorder, read_process_memory

__all__ = ["SpanLog", "StepCounts", "StepOutcome", "StepRecorder", "read_process_memory"]
