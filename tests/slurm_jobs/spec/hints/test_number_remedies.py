"""Remedies for numbers with a unit, in quotes, or with an exponent."""

import pytest

from slurm_jobs.formats.configs.training_parts import OptimizerConfig
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.resource_problems import resources


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("timeout_min: 1000d", "write 1440000"),
        ("timeout_min: 30s", "write 0.5"),
        ("timeout_min: 1.1 h", "write 66"),
        ("timeout_min: 1 week", "write 10080"),
        ("signal_lead_s: 2h", "write 7200"),
        ("signal_lead_s: 1 minute", "write 60"),
        ("mem_gb: 512M", "write 0.5"),
        ("mem_gb: 0.5 TB", "write 512"),
        ("mem_gb: 1048576 K", "write 1"),
        ("timeout_min: '12:00:00'", "write 720"),
    ],
)
def test_a_number_with_a_unit_is_refused_with_the_converted_number(given: str, remedy: str) -> None:
    (line,) = resources(given)
    key = given.partition(":")[0]
    unit = {"b": "gigabytes", "n": "minutes", "s": "seconds"}[key[-1]]
    assert line.endswith(f"`{key}` counts {unit}: {remedy}")


@pytest.mark.parametrize(
    "given",
    ["signal_lead_s: 0.5 s", "timeout_min: 3 parsec", "nodes: 2 s", f"mem_gb: {'9' * 5000}G"],
)
def test_what_no_unit_makes_fit_gets_no_remedy(given: str) -> None:
    (line,) = resources(given)
    assert "counts" not in line


def test_a_number_with_an_exponent_in_quotes_is_to_lose_them() -> None:
    document = read_yaml('learning_rate: "1e-4"', "f")
    _, problems = validate_values(OptimizerConfig, document, document.value, ())
    assert problems[0].message == (
        "learning_rate: expected a number, found the text `1e-4`; remove the quotes"
    )
