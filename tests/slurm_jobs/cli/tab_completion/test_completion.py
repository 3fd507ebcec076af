"""What a TAB offers: in real shells, from real folders."""

from __future__ import annotations

import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from slurm_jobs.cli import command_parser
from slurm_jobs.cli.tab_completion.completion import MAX_RUNS, SHELLS, complete_value
from tests.slurm_jobs.cli.typing_shells import PROGRAM, asked, is_there, offered, words_typed

STAMPS = ("20261121-080611-5b9e", "20261122-080611-0a1b", "20261120-235959-ffff")
HEAVY = {"torch", "submitit", "rich", "numpy", "pydantic", "pipeline", "yaml"}


def make_run(folder: Path, name: str) -> Path:
    run = folder / name
    run.mkdir(parents=True)
    (run / "run.json").touch()
    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user has it, with three runs and a spec."""
    folder = tmp_path / "here"
    for stamp in STAMPS:
        make_run(folder / "runs", f"shapes-{stamp}")
    (folder / "runs" / "no-run").mkdir()
    (folder / "captions.yaml").touch()
    (folder / "notes.txt").touch()
    (folder / "status").mkdir()  # a folder of a verb's name gets no slash after the verb
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return folder


def test_a_tab_offers_verbs_and_the_options_of_a_verb(here: Path) -> None:
    assert offered("slurm-jobs st") == ["status"]
    assert offered("slurm-jobs ") == list(command_parser.VERBS)
    assert offered("slurm-jobs --v") == ["--version"]
    assert offered("slurm-jobs logs --f") == ["--failed", "--follow"]
    assert "--json" not in offered("slurm-jobs status --json --")
    assert "--set" in offered("slurm-jobs check a.yaml --set a=1 --")
    assert offered("slurm-jobs completion ") == list(SHELLS)


def test_runs_come_newest_first_and_no_other_folder(here: Path) -> None:
    newest = [f"shapes-{stamp}" for stamp in sorted(STAMPS, reverse=True)]
    assert offered("slurm-jobs status sh") == newest
    assert offered("slurm-jobs status runs/no") == ["runs/no-run/"]
    assert offered("slurm-jobs compare a shapes-20261121,sha")[0].endswith(newest[0])


def test_runs_are_found_where_the_environment_says(here: Path, monkeypatch, tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere", "words-20261121-080611-5b9e")
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(tmp_path / "elsewhere"))
    assert offered("slurm-jobs status wo") == ["words-20261121-080611-5b9e"]


def test_paths_are_specs_and_folders_or_any_file_by_the_argument(here: Path, monkeypatch) -> None:
    assert offered("slurm-jobs check ") == ["captions.yaml", "runs/", "status/"]
    assert offered("slurm-jobs report --export n") == ["notes.txt"]
    assert offered("slurm-jobs report --export=n") == ["--export=notes.txt"]
    assert offered("slurm-jobs logs --rank ") == []
    monkeypatch.setenv("HOME", str(here))
    assert offered("slurm-jobs check ~/c") == ["~/captions.yaml"]


@pytest.mark.parametrize("verb", command_parser.VERBS)
def test_every_argument_that_is_a_path_a_run_or_a_spec_has_values(here: Path, verb: str) -> None:
    parser = command_parser.build_parser([verb]).verb
    assert parser is not None
    for action in parser._actions:
        if action.dest in ("run", "spec", "target", "folder", "out", "python"):
            assert action.choices or list(complete_value("", action, Namespace())), action.dest


@pytest.mark.parametrize(
    "line",
    ["", "slurm-jobs nonsense ", "slurm-jobs 'a", "slurm-jobs check a b c ", "slurm-jobs st\\"],
)
def test_a_tab_on_a_line_with_nothing_to_complete_prints_no_error(here: Path, line: str) -> None:
    assert set(offered(line)) <= {*command_parser.VERBS}


def test_a_completion_loads_nothing_heavy_and_a_start_no_argcomplete(
    here: Path,
) -> None:
    def loaded(stderr: str) -> set[str]:
        return {row.rpartition("|")[2].strip().partition(".")[0] for row in stderr.splitlines()}

    program = (PROGRAM[0], "-X", "importtime", *PROGRAM[1:])
    tab = asked("slurm-jobs logs ", program)
    assert len(tab.stdout.splitlines()) > 1
    assert "argcomplete" in loaded(tab.stderr)
    assert not loaded(tab.stderr) & HEAVY
    help_text = subprocess.run([*program, "--help"], capture_output=True, text=True, check=True)
    assert "argcomplete" not in loaded(help_text.stderr)


_COUNTS_LOOKS = """
import os, runpy, sys
num_looks = 0
def hear(event, values):
    global num_looks
    num_looks += event in ("open", "os.scandir", "os.listdir") and "many-" in str(values[0])
sys.addaudithook(hear)
os._exit = sys.exit
try:
    runpy.run_module("slurm_jobs", run_name="__main__")
finally:
    print(num_looks, len(sys.modules), file=sys.stderr)
"""


def test_a_tab_reads_few_of_a_thousand_runs(here: Path) -> None:
    """The seconds are measured by `benchmarks/orchestrator.py`."""
    for number in range(1000):
        make_run(here / "runs", f"many-20261121-{number:06d}-5b9e")
    result = asked("slurm-jobs logs m", (PROGRAM[0], "-c", _COUNTS_LOOKS))
    num_looks, num_modules = map(int, result.stderr.split())
    assert len(result.stdout.splitlines()) == MAX_RUNS
    assert num_looks <= 2 * MAX_RUNS
    assert num_modules < 250


def test_names_that_could_control_a_terminal_or_be_options_are_not_offered(here: Path) -> None:
    for name in ("a\nb", "a\x1b]0;x\x07b", "a\u202eb", "a\udcffb", "-a", "--yes"):
        make_run(here / "runs", f"{name}-20261121-080611-5b9e")
    (here / "-x.yaml").touch()
    assert offered("slurm-jobs status a") == []
    assert offered("slurm-jobs status ") == [
        *(f"shapes-{stamp}" for stamp in sorted(STAMPS, reverse=True)),
        *("captions.yaml", "runs/", "status/"),
    ]


def in_shell(shell: str, keys: str, here: Path) -> list[str]:
    if not is_there(shell):
        pytest.skip(f"this machine has no {shell}")
    return words_typed(shell, keys, here, here.parent / "home")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_verb_run_option_and_spec(shell: str, here: Path) -> None:
    keys = "slurm-jobs log\tshapes-20261122\tfetch --tai\t3"
    expected = ["logs", "shapes-20261122-080611-0a1b", "fetch", "--tail", "3"]
    assert in_shell(shell, keys, here) == expected
    assert in_shell(shell, "slurm-jobs statu\t--fre\t", here) == ["status", "--fresh"]
    keys = "slurm-jobs plan capt\t--no\t"
    assert in_shell(shell, keys, here) == ["plan", "captions.yaml", "--no-scripts"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "name",
    [
        "evil'\"$(touch pwned)'\"`touch pwned`; & touch pwned | cat > pwned",
        pytest.param("evil $(touch pwned)", marks=pytest.mark.slow),
        pytest.param("evil `touch pwned`", marks=pytest.mark.slow),
        pytest.param("evil; touch pwned;", marks=pytest.mark.slow),
        pytest.param("evil!\\ {a,b} * ? [x] ~ $HOME (touch pwned)", marks=pytest.mark.slow),
        pytest.param("evil\u00e9 \u4e2d", marks=pytest.mark.slow),
    ],
)
def test_a_name_with_shell_characters_is_completed_quoted_and_runs_nothing(
    shell: str, here: Path, name: str
) -> None:
    run = f"{name}-20261121-080611-5b9e"
    make_run(here / "runs", run)
    assert in_shell(shell, "slurm-jobs status ev\t", here) == ["status", run]
    assert not (here / "pwned").exists()
    (here / "runs" / run).rename(here / "runs" / "away")
    (here / f"{name}.yaml").touch()
    words = in_shell(shell, "slurm-jobs check ev\t--js\t", here)
    assert words == ["check", f"{name}.yaml", "--json"]
    assert not (here / "pwned").exists()


@pytest.mark.parametrize("quote", ["'", '"'])
def test_an_open_quote_is_completed_and_closed_in_bash(quote: str, here: Path) -> None:
    (here / "my spec $(touch pwned).yaml").touch()
    words = in_shell("bash", f"slurm-jobs check {quote}my sp\t", here)
    assert words == ["check", "my spec $(touch pwned).yaml"]
    assert not (here / "pwned").exists()
