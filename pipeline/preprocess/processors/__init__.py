"""Processor folders: their files and checksum, and folders that a stage writes.

`slurm_jobs.common.processors` reads image settings from a folder's JSON files.
"""

from pipeline.preprocess.processors.folder import hash_folder

__all__ = ["hash_folder", "processor_files"]
