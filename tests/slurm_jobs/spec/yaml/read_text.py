"""YAML as it is read, with its problems."""

from slurm_jobs.spec.yaml.document import YamlDocument
from slurm_jobs.spec.yaml.reader import read_yaml

NBSP, NARROW, ZERO, BOM = "\u00a0", "\u202f", "\u200b", "\ufeff"


def read(text: str) -> YamlDocument:
    return read_yaml(text, "f")
