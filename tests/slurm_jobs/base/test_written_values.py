"""Values in messages are shortened and made printable."""

from tests.slurm_jobs.spec.resource_problems import resources


def test_a_long_value_is_shortened_and_made_printable() -> None:
    (line,) = resources(f'nodes: "\\e[2J{"x" * 500}"')
    assert "\x1b" not in line
    assert len(line) < 200
