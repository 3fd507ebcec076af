"""Import path of stop requests for functions of users (docs/own-stages-stopping.md)."""

from slurm_jobs.shared.processes.stop_requests import note_stop_time, stop_requested

__all__ = ["note_stop_time", "stop_requested"]
