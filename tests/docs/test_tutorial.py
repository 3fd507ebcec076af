"""The tutorial has what its commands printed; docs/tools/make_tutorial.py types them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/tutorial/first-hour.md").read_text()
_BLOCK = r"<!-- transcript.*?-->\n```console\n(.*?)^```$"
BLOCKS = re.findall(_BLOCK, PAGE, re.MULTILINE | re.DOTALL)


def test_each_block_of_the_transcript_has_an_output() -> None:
    assert len(BLOCKS) == PAGE.count("<!-- transcript") >= 10
    silent = [block for block in BLOCKS if all(line[:2] == "$ " for line in block.splitlines())]
    assert silent == []


def test_the_machine_and_the_day_are_named() -> None:
    machine = r"machine: begin -->\n\(On \d+ cores .*20\d\d-\d\d-\d\d; all nodes are one"
    assert re.search(machine, PAGE)


def test_the_run_of_the_transcript_was_killed_and_came_to_its_end() -> None:
    printed = "".join(BLOCKS)
    assert "train cancelled" in printed
    assert "runs again: train" in printed
    assert "Completed in" in printed
