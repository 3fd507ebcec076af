"""Problems of the resources in a text."""

from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.reader import read_yaml


def resources(text: str) -> list[str]:
    document = read_yaml(text, "f")
    _, problems = validate_values(Resources, document, document.value, ())
    return [str(problem) for problem in problems]
