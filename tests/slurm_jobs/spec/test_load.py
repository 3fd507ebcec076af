"""A spec as it is loaded: problems in one pass, and files that are no spec."""

import shlex
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.spec_files import Files
from tests.slurm_jobs.spec.conftest import Check

DEMO = Path(__file__).resolve().parents[3] / "configs" / "demo.yaml"
DEMO_TEXT = DEMO.read_text(encoding="utf-8")
EVERYTHING_WRONG = """\
name: 1st
clutser: local
setup: module load
environment: {A-B: x}
stages:
  prep:
    run: preprocess
    array: {num_slices: 0x10}
    resources: {slurm: {mem: 4}}
    config: {manifest: nope.csv, processor: ./nope, too_long: dropp}
    config: {}
  cons:
    run: consolidate
    after: prp
    retries: yes
  a: {shell: make, after: b}
  b: {shell: make, after: a, config: {x: "${cons.output_dir}"}}
  c: {shell: make, run: report}
"""


def test_problems_of_all_kinds_are_found_in_one_pass_each_once(check: Check) -> None:
    lines = check(EVERYTHING_WRONG, overrides=("stages.perp.retries=1",))
    assert [line.partition(": ")[0] for line in lines] == [
        "--set stages.perp.retries=1",
        *("1:7", "2:1", "3:8", "4:15", "8:25", "9:25", "10:24", "10:45", "10:63", "11:5"),
        *("14:12", "15:14", "17:27", "17:42", "18:7"),
    ]
    assert len(set(lines)) == len(lines)


def test_a_spec_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "nope.yaml")
    assert str(caught.value) == f"{tmp_path}/nope.yaml: no such file"


@pytest.mark.parametrize(("name", "kind"), [("photos", "a folder"), ("my rows.CSV", "data")])
def test_a_folder_or_manifest_is_no_spec_and_is_for_init(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / name
    path.mkdir() if kind == "a folder" else path.write_text("image_path,text\na.png,a\n")
    with pytest.raises(SpecError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: {kind}, but a spec is a YAML file; for images or a manifest: `slurm-jobs init "
        f"--data {shlex.quote(str(path))}`"
    )


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n"])
def test_an_empty_file_says_so(check: Check, text: str) -> None:
    assert check(text) == ["1:1: the file is empty"]


def test_a_byte_order_mark_and_windows_line_ends_are_read(check: Check) -> None:
    assert check("\ufeffname: a\r\ncluster: local\r\nstages: {s: {shell: make}}\r\n") == []


def test_a_folder_whose_name_would_break_a_script_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    (folder / "spec.yaml").write_text("name: a\ncluster: local\nstages: {s: {shell: make}}\n")
    with pytest.raises(SpecError, match="line break, backslash or control character"):
        load(folder / "spec.yaml")


def load_text(text: str) -> None:
    """Load from memory; the demo's own files are on disk. Nothing but a SpecError may come out."""
    disk = disk_files()
    files = Files(
        read_text=lambda file: text if file == str(DEMO) else disk.read_text(file),
        exists=disk.exists,
        expand=disk.expand,
        expand_text=disk.expand_text,
    )
    start = time.process_time()
    problems = []
    try:
        load_spec(str(DEMO), files)
    except SpecError as error:
        problems = list(error.problems)
        assert problems
    assert all(problem.message.isprintable() for problem in problems)
    assert all(problem.line >= 1 for problem in problems if problem.file == str(DEMO))
    assert time.process_time() - start < 3


ODD = st.sampled_from(
    [
        *("null", "[]", "{}", "-1", "1e999", "no", "'${x}'", "[[1]]", "{a: b}", '"\\0"', "*x"),
        *("~", "''", "9" * 40, "1.5", "true", "{<<: {}}", "!!set {a}", "'$(x)'", "é" * 3),
        "'${train.output_dir}'",
    ]
)
SLOW_MACHINE = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@SLOW_MACHINE
@given(st.text(max_size=300))
def test_any_text_is_a_spec_or_a_spec_error(text: str) -> None:
    load_text(text)


@SLOW_MACHINE
@given(st.text(alphabet="{}[]:,-&*!|>'\"%@`# \n\tab01.~?<$\\", max_size=200))
def test_any_text_similar_to_yaml_is_a_spec_or_a_spec_error(text: str) -> None:
    load_text(text)


@SLOW_MACHINE
@given(st.data())
def test_a_mutated_demo_is_a_spec_or_a_spec_error(data: st.DataObject) -> None:
    lines = DEMO_TEXT.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line, odd = lines[at], data.draw(ODD)
        changes = (
            *("", f"{line}\n{line}", "  " + line, line[: len(line) // 2]),
            *(f"{line.partition(':')[0]}: {odd}", line.replace(": 1", f": {odd}", 1)),
        )
        lines[at] = data.draw(st.sampled_from(changes))
    load_text("\n".join(lines))
