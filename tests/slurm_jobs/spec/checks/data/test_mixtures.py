"""Lists of manifests in a spec: mistakes at their place, and the mixture that is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes

CONSOLIDATE = "  c: {{run: consolidate, after: p, config: {{{config}}}}}\n"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    write_processor(tmp_path)
    (tmp_path / "a.csv").write_text("image,text\n" + "a.png,words\n" * 30)
    (tmp_path / "b").mkdir()
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    (tmp_path / "b" / "b.csv").write_text("image,answer_text\n" + "a.png,words\n" * 10)


GOOD = "{path: b/b.csv, columns: {text: answer_text}, image_root: ., SHARE}"


def _spec(entries: str, config: str = "") -> str:
    return SPEC.format(name=f"[{entries}]") + CONSOLIDATE.format(config=config)


@pytest.mark.parametrize(
    ("entries", "column", "words"),
    [
        ("{path: a.csv, repeat: 2, weight: 1}", 40, "manifest.0.repeat and manifest.0.weight are"),
        ("{path: a.csv, repeats: 2}", 32, "unknown key `repeats`; did you mean `repeat`?"),
        ("{path: a.csv, repeat: -1}", 40, "manifest[0].repeat: must be greater than 0"),
        ("{path: a.csv, num_samples: 1.5}", 45, "manifest[0].num_samples: expected a whole number"),
        ("{repeat: 2}", 18, "key `path` is missing in stages.p.config.manifest[0]"),
        ("a.csv, {path: a.csv, repeat: 2}", 25, "manifest.1 is called `a`, as manifest.0 is"),
        ("a.csv, {path: gone.csv}", 32, "nothing at gone.csv"),
        ("a.csv, {path: b/b.csv}", 32, "no column has turns"),
        ("a.csv, 5", 25, "expected text or keys and values, found `5`"),
    ],
)
def test_each_mistake_is_one_error_at_its_place(
    check: Check, entries: str, column: int, words: str
) -> None:
    (line,) = check(_spec(entries))
    assert line.startswith(f"7:{column}: ")
    assert words in line


def test_missing_images_of_one_manifest_are_found_in_its_own_folder(
    check: Check, tmp_path: Path
) -> None:
    entry = GOOD.replace("image_root: ., SHARE", "repeat: 2")
    (line,) = check(_spec(f"a.csv, {entry}"))
    assert "none of 10 images exists" in line
    assert "b/a.png" in line


@pytest.mark.parametrize(
    ("share", "config", "mixture"),
    [
        ("repeat: 1.5", "", "45 samples: a 30 (67 %), b 15 (33 %)"),
        ("num_samples: 3", "", "33 samples: a 30 (91 %), b 3 (9.1 %)"),
        ("repeat: 9", "mixture: {a: {weight: 3}, b: {weight: 1}}", "40 samples: a 30 (75 %), b 10"),
    ],
)
def test_expected_mixture_is_noted(notes: Notes, share: str, config: str, mixture: str) -> None:
    lines = notes(_spec(f"a.csv, {GOOD.replace('SHARE', share)}", config))
    assert any(f"if every row becomes a sample, `c` writes {mixture}" in line for line in lines)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("mixture: {bb: {repeat: 2}}", "`p` has no manifest `bb`; did you mean `b`?"),
        ("mixture: {b: {weight: 2}}", "b.weight is given, and a has no weight"),
    ],
)
def test_shares_of_consolidate_must_fit_the_list(check: Check, config: str, words: str) -> None:
    (line,) = check(_spec(f"a.csv, {GOOD.replace('SHARE', 'repeat: 2')}", config))
    assert words in line
