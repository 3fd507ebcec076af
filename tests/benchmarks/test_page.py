"""The page that `make bench` writes: one section anew, the others as they are."""

import json
import sys

import pytest

from benchmarks import __main__ as page

FOUND = {
    "machine": {"cpu": "abacus", "cores": 2, "python": "3.11.7", "date": "2026-11-23"},
    "versions": {"torch": "2.13.0"},
    "rows": [
        {
            "case": "count", "unit": "s", "ours": 2.0, "peer": "fingers", "peer_value": 4.0,
            "ratio": 0.5, "goal": "at most 1", "met": True,
        }
    ],
}  # fmt: skip


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the page, in the place of the project's own."""
    copy = tmp_path / "performance.md"
    copy.write_text(page.PAGE.read_text())
    monkeypatch.setattr(page, "PAGE", copy)
    return copy


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, arguments)])
    page.main()


def test_a_named_section_is_rewritten_and_the_others_stay(copy, tmp_path, monkeypatch):
    before = copy.read_text()
    (tmp_path / "recording.json").write_text(json.dumps(FOUND))
    call(monkeypatch, "recording", "--found", tmp_path)
    head, heading, rest = before.partition("## Recording steps")
    later = rest[rest.index("\n## ") :]
    after = copy.read_text()
    assert after.startswith(f"{head}{heading}\n")
    assert after.endswith(f"| count | s | 2 | fingers | 4 | 0.50 | at most 1 | yes |\n{later}")


def test_figures_of_another_processor_stay_in_columns_of_their_own(copy, tmp_path, monkeypatch):
    for cpu, ours in (("Intel(R) Xeon(R) Processor @ 2.50GHz", 3.0), ("abacus", 2.0)):
        found = {**FOUND, "machine": {**FOUND["machine"], "cpu": cpu}}
        found["rows"] = [{**FOUND["rows"][0], "ours": ours, "ratio": ours / 4}]
        (tmp_path / "recording.json").write_text(json.dumps(found))
        call(monkeypatch, "recording", "--found", tmp_path)
    text = copy.read_text()
    assert "| met | Xeon: ours | peer's | ratio | met |\n" in text
    row = "| count | s | 2 | fingers | 4 | 0.50 | at most 1 | yes | 3 | 4 | 0.75 | yes |\n"
    assert row in text
    call(monkeypatch, "recording", "--found", tmp_path)
    assert copy.read_text() == text


def test_an_unknown_name_runs_nothing(copy, monkeypatch, capsys):
    before = copy.read_text()
    with pytest.raises(SystemExit):
        call(monkeypatch, "recordings")
    assert "no benchmark recordings; there are orchestrator, packing" in capsys.readouterr().err
    assert copy.read_text() == before
