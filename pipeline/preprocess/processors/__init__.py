"""Processor folders: their files and checksum, and folders that a stage writes itself.

What a folder's JSON files say of images is in `slurm_jobs.common.processors`.
"""

from pipeline.preprocess.processors.folder import hash_folder

__all__ = ["hash_folder", "processor_files"]
