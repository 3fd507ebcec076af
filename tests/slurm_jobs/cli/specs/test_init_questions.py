"""Questions of `init` on a terminal, and answers that are asked for again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.cli.specs.begun import Init, answering, begin, images, init

__all__ = ["begin", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_questions_are_answered_and_enter_takes_the_default(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, "pics\n\n")
    said = init("--name", "asked")
    assert "your manifest or folder of images" in said.err
    assert "Qwen/Qwen2.5-VL-3B-Instruct, which the stage `models` downloads" in said.out
    assert "there is no folder" not in said.err + said.out


DATA, MODEL = "your manifest or folder", "model: a folder, or OWNER/NAME"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            "picz\npics\n\n",
            f"picz: No such file or directory; name the file of a manifest, or a folder\n{DATA}",
        ),
        ("~nobody-of-that-name\npics\n\n", f"for a name that begins with `~`\n{DATA}"),
        (
            f"{'x' * 300}\npics\n\n",
            f"File name too long; name the file of a manifest, or a folder\n{DATA}",
        ),
        ("pics\n./nomodel\n\n", f"\n{MODEL}"),
        ("pics\npics\n\n", f"\n{MODEL}"),
        ("pics\n~nobody-of-that-name\n\n", f"\n{MODEL}"),
    ],
)
def test_a_path_or_a_model_that_is_not_there_is_asked_again(
    init: Init, answers: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, answers)
    said = init("--name", "asked")
    assert told in said.err
    assert (said.err.count(DATA), said.err.count(MODEL)) in {(2, 1), (1, 2)}
    assert "wrote configs/asked.yaml" in said.out


def test_ctrl_d_ends_the_questions_and_writes_nothing(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, "")
    assert "nothing was written: the input ended" in init(code=2).err
    assert list(tmp_path.iterdir()) == []
