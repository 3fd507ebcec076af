"""Problems of specs whose stages come after each other."""

from collections.abc import Callable, Iterator

from slurm_jobs.base.errors import Problem
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.graph import graph_problems
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.stage_views import stage_views
from slurm_jobs.spec.yaml.reader import read_yaml

FILES = Files(read_text=lambda _file: "", exists=lambda _file: False)


def problems(
    stages: str, find: Callable[[CheckedSpec], Iterator[Problem]] = graph_problems
) -> list[str]:
    document = read_yaml(f"stages:\n{stages}", "f")
    assert document.problems == ()
    spec = CheckedSpec(document=document, views=stage_views(document.value), files=FILES)
    return [str(problem).removeprefix("f:") for problem in find(spec)]
