"""Recording where the time of a rank goes; judging it is the report's work."""

from pipeline.timing.spans import SpanLog
from pipeline.timing.steps import StepCounts, StepOutcome, StepRecorder, read_process_memory

__all__ = ["SpanLog", "StepCounts", "StepOutcome", "StepRecorder", "read_process_memory"]
