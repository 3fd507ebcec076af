"""Name and folder of runs of a spec, whatever else is wrong with it."""

from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.run_search.spec_place import name_and_runs_dir


@pytest.mark.parametrize(
    ("text", "line"), [("name: a\nname: b\n", 2), ("name: a\nstages: {x: {name: 1, name: 2}}\n", 0)]
)
def test_a_repeated_key_hides_a_runs_name_only_at_the_top(
    tmp_path: Path, text: str, line: int
) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    if not line:
        assert name_and_runs_dir(file)[0] == "a"
        return
    with pytest.raises(SpecError, match="key `name` is repeated") as raised:
        name_and_runs_dir(file)
    assert [problem.line for problem in raised.value.problems] == [line]
