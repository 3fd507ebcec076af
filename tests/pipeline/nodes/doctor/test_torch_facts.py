"""PyTorch is asked in a process of its own; here a module of the test's stands in its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline.nodes.doctor.torch_facts import ask_torch


def _stand_in(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "torch.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os; os.abort()", "importing torch"),
        ("import time; time.sleep(60)", "no answer in 2 s"),
        ("raise OSError('libcudart.so.13: cannot open')", "libcudart.so.13"),
        ("raise ModuleNotFoundError('gone', name='torch')", "the package torch is missing"),
    ],
)
def test_an_import_that_ends_badly_is_a_reason_and_ends_nothing_else(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, text, monkeypatch)
    facts = ask_torch(2.0)
    assert said in facts.problem
    assert facts.cards == ()


def test_a_real_torch_without_cuda_says_that_it_is_a_build_without() -> None:
    facts = ask_torch()
    assert facts.problem == ""
    assert facts.import_s is not None
    assert facts.cards or facts.cuda_problem
