"""Records that jobs write and the login node reads, and the context of a stage's function.

The names here are the import path of the documentation (docs/guides/code/own-stages.md), and of
copies of our recipes in users' folders (`resume_command`).
"""

from slurm_jobs.formats.records.task_context import ParentStage, TaskContext, resume_command

__all__ = ["ParentStage", "TaskContext", "resume_command"]
