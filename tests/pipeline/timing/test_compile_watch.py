"""Compilations in the midst of steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pipeline.timing.compile_watch import CompileWatch
from slurm_jobs.formats.records.heartbeat import begin_steps

pytestmark = pytest.mark.usefixtures("_forget_compiled")


def test_a_compilation_in_the_midst_of_steps_has_the_patience_of_one(last_beat):
    doing = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        doing.append(last_beat()["doing"])
        return graph.forward

    begin_steps()
    with CompileWatch(lambda _: None, num_expected=8, is_main=False):
        double = torch.compile(lambda x: 2 * x, backend=backend)
        double(torch.ones(3))
        doing.append(last_beat()["doing"])
        double(torch.ones(3, 3))
    assert [*doing, last_beat()["doing"]] == ["compilation", "steps", "compilation", "steps"]
