"""The memory of a slice does not grow with its bad images."""

from __future__ import annotations

import errno
import io
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest
from PIL import Image

from pipeline.preprocess import slice_writer
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.images import load_pixels, row_images
from pipeline.preprocess.part import PartBuilder
from pipeline.preprocess.stage import run
from pipeline.stopping import StopGuard
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.rows_in_progress import RowsInProgress
from tests.pipeline.build import make_context
from tests.pipeline.kinds import write_kind
from tests.pipeline.preprocess.slices import Config, make_row, rejects_of


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (
            "image_sources.read_image_bytes",
            OSError(116, "Stale file handle"),
            "an image cannot be read.*Stale",
        ),
        (
            "row_images.load_pixels",
            MemoryError(),
            r"red\.png: not enough memory .*resources\.mem_gb",
        ),
        (
            "row_images.load_pixels",
            OSError(errno.EMFILE, "Too many open files"),
            ".*Too many open files",
        ),
    ],
    ids=["a failing file system", "no memory", "no more files"],
)
def test_lack_of_a_resource_fails_the_slice_and_is_no_reject(
    tmp_path: Path, config: Config, function: str, error: Exception, words: str
) -> None:
    with (
        patch(f"pipeline.preprocess.images.{function}", side_effect=error),
        pytest.raises(StageError, match=rf"train\.csv:2: {words}"),
    ):
        run(config, make_context(tmp_path))


def replace_by_other_rows(manifest: Path) -> None:
    new = manifest.with_name("new.csv")
    new.write_text(manifest.read_text().replace("red ", "crimson "))
    new.replace(manifest)


def cut(manifest: Path) -> None:
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:6]))


@pytest.mark.parametrize("change", [replace_by_other_rows, cut])
@pytest.mark.parametrize("num_read", [0, 1])
def test_manifest_that_changes_during_a_slice_leads_to_a_retry_and_no_part(
    tmp_path: Path, config: Config, num_read: int, change: Callable[[Path], None]
) -> None:
    """It changes once its rows are counted, or when the first of them was read."""
    write = slice_writer.SliceWriter.write

    def change_meanwhile(writer: Any, rows: Iterator[ManifestRow], *others: Any) -> None:
        first = list(itertools.islice(rows, num_read))
        change(Path(config["manifest"]))
        write(writer, itertools.chain(first, rows), *others)

    words = r"train\.csv: changed while its rows were read"
    with (
        patch.object(slice_writer.SliceWriter, "write", change_meanwhile),
        pytest.raises(StageError, match=words) as caught,
    ):
        run(config, make_context(tmp_path))
    assert not isinstance(caught.value, StageConfigError)
    assert not list((tmp_path / "output" / "parts").iterdir())


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (load_pixels, "open_image"),
        (row_images, "read_upright_size"),
        (row_images, "load_pixels"),
    ],
    ids=["open_image", "read_upright_size", "load_pixels"],
)
@pytest.mark.parametrize(
    "error", [ZeroDivisionError("division by zero"), RuntimeError("odd"), OSError("decoder error")]
)
def test_whatever_a_decoder_raises_is_a_reject_and_the_slice_goes_on(
    tmp_path: Path, config: Config, module: ModuleType, name: str, error: Exception
) -> None:
    once = itertools.chain([error], itertools.repeat(DEFAULT))
    with patch.object(module, name, wraps=getattr(module, name), side_effect=once):
        result = run({**config, "num_threads": 1, "max_reject_share": 0.1}, make_context(tmp_path))
    assert result["num_samples"] == 9
    assert result["rejects_by_reason"] == {"unexpected_error": 1}
    (reject,) = rejects_of(tmp_path / "output")
    assert reject["message"].endswith(f"red.png: {type(error).__name__}: {error}")
    assert "train.csv:2" in reject["message"]


@pytest.mark.parametrize("too_long", ["drop", "error"])
def test_images_of_a_row_that_is_too_long_are_not_decoded(
    tmp_path: Path, too_long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.preprocess.slice_writer import SliceWriter

    Image.new("RGB", (300, 300)).save(tmp_path / "a.jpg")
    encoder = SampleEncoder(
        write_kind("qwen2_vl", tmp_path / "p"),
        image_root=tmp_path,
        max_tokens=50,
        too_long=too_long,
    )
    monkeypatch.delattr("PIL.ImageFile.ImageFile.load")
    writer = SliceWriter(
        encoder=encoder,
        image_format="png",
        image_quality=95,
        num_threads=1,
        in_progress=RowsInProgress(tmp_path),
    )
    progress = Progress(tmp_path, "samples", 1)
    guard = StopGuard(make_context(tmp_path), "rows", "")
    rows, builder = [make_row(tmp_path, "a.jpg")], PartBuilder(io.BytesIO())
    if too_long == "error":
        with pytest.raises(StageConfigError, match=r"rows\.jsonl:1: \d+ tokens, max_tokens is 50"):
            writer.write(rows, builder, progress, guard)
        return
    writer.write(rows, builder, progress, guard)
    assert [reject.reason for reject in writer.rejects] == ["images_too_long"]


def measure(kind: str, *, num_bad: int, num_rows: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.pipeline.preprocess.memory", kind]
    options = ["--num-bad", str(num_bad), "--num-rows", str(num_rows)]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    assert sum(found["rejects_by_reason"].values()) == num_bad
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("truncated", "truncated_image"),
        ("ico", "too_many_pixels"),
        ("icns", "not_an_image"),
        ("png", "too_many_pixels"),
    ],
)
def test_memory_is_flat_in_the_number_of_rejects(kind: str, reason: str) -> None:
    few = measure(kind, num_bad=50, num_rows=100)
    many = measure(kind, num_bad=500, num_rows=550)
    assert set(many["rejects_by_reason"]) == {reason}
    assert many["peak_mb"] < 1.2 * few["peak_mb"]
    assert many["peak_mb"] < 1500
