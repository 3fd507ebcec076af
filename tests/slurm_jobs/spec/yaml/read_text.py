"""YAML as it is read, with its problems."""

from slurm_jobs.spec.yaml.document import YamlDocument
from slurm_jobs.spec.yaml.reader import read_yaml

NBSP, NARROW, WIDE, ZERO, BOM = "\u00a0", "\u202f", "\u3000", "\u200b", "\ufeff"
COLON = "\uff1a"


def read(text: str) -> YamlDocument:
    return read_yaml(text, "f")
