"""What a TAB offers: in real shells, from real folders."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs import cli
from slurm_jobs.cli.complete import answer_lines, sources
from slurm_jobs.cli.complete_line import TypedWord
from slurm_jobs.cli.complete_names import MAX_RUNS
from slurm_jobs.cli.completion import SHELLS
from slurm_jobs.cli.completion_scripts import script

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package

from typing_shells import PROGRAM, ROOT, is_there, words_typed

STAMPS = ("20261121-080611-5b9e", "20261122-080611-0a1b", "20261120-235959-ffff")
HEAVY = {"torch", "submitit", "rich", "numpy", "pydantic", "pipeline"}
TAKES_ANYTHING = {
    *{"--attempt", "--budget", "--epochs", "--file-mb", "--grep", "--key", "--limit"},
    *{"--max-images", "--max-tokens", "--minutes", "--nodelist", "--nodes", "--num", "--number"},
    *{"--operators", "--random", "--rank", "--ranks", "--rows", "--seconds", "--slice", "--tail"},
    *{"--threads", "--warmup-steps", "--wait"},
    *{"--account", "--model", "--name", "--partition"},
}
"""Options whose values are numbers or free text."""


def make_run(folder: Path, name: str, **stages: str) -> Path:
    run = folder / name
    (run / "spec").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    values = {"stages": {stage: {"run": kind} for stage, kind in stages.items()}}
    (run / "spec" / "resolved.json").write_text(json.dumps(values))
    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user has it, with three runs and a spec."""
    folder = tmp_path / "here"
    for stamp in STAMPS:
        make_run(folder / "runs", f"shapes-{stamp}", fetch="preprocess", train="train")
    (folder / "runs" / "no-run").mkdir()
    (folder / "captions.yaml").write_text("name: c\nstages:\n  learn: {run: train}\n")
    (folder / "status").mkdir()  # a folder of a verb's name gets no slash behind the verb
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    return folder


def asked(line: str) -> tuple[str, list[str]]:
    """First line and candidates of a process of its own; it says nothing else, and ends with 0."""
    result = subprocess.run(
        [*PROGRAM, "__complete", "bash", line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    first, *lines = result.stdout.splitlines() or [""]
    return first, lines


def test_a_tab_offers_verbs_and_the_options_of_a_verb(here: Path) -> None:
    assert asked("slurm-jobs st") == ("", ["status"])
    assert asked("slurm-jobs ")[1] == [*cli.VERBS, "--help", "--version"]
    assert asked("slurm-jobs logs --f") == ("", ["--failed", "--follow"])
    assert "--json" not in asked("slurm-jobs status --json --")[1]
    assert "--set" in asked("slurm-jobs check a.yaml --set a=1 --")[1]
    assert asked("slurm-jobs completion ")[1] == list(SHELLS)
    assert asked("cd x; slurm-jobs st") == ("", ["status"])


def test_runs_come_newest_first_and_no_other_folder(here: Path) -> None:
    newest = [f"shapes-{stamp}" for stamp in sorted(STAMPS, reverse=True)]
    assert asked("slurm-jobs status sh") == ("", newest)
    assert asked("slurm-jobs status runs/no") == ("nospace", ["runs/no-run/"])
    assert asked("slurm-jobs compare shapes-20261121-080611-5b9e,sha")[1][0].endswith(newest[0])


def test_runs_lie_where_the_environment_says(here: Path, monkeypatch, tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere", "words-20261121-080611-5b9e")
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(tmp_path / "elsewhere"))
    assert asked("slurm-jobs status wo") == ("", ["words-20261121-080611-5b9e"])


def test_specs_are_files_with_their_ending_and_folders(here: Path) -> None:
    (here / "notes.txt").touch()
    assert asked("slurm-jobs check ")[1] == ["captions.yaml", "runs/", "status/"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("logs shapes-20261121-080611-5b9e ", ["fetch", "train"]),
        ("logs t", ["train"]),
        ("logs shapes-20261121 f", ["fetch"]),
        ("cancel runs/shapes-20261121-080611-5b9e --stage ", ["fetch", "train"]),
        ("resume --again ", ["fetch", "train"]),
        ("tune captions.yaml --stage=", ["learn"]),
        ("plan captions.yaml --set stages.", ["stages.learn."]),
        ("plan captions.yaml --set stages.learn.resources.n", ["stages.learn.resources.nodes="]),
        ("plan captions.yaml --set stages.learn.config.num_e", ["stages.learn.config.num_epochs="]),
        ("plan captions.yaml --set ru", ["runs_dir="]),
    ],
)
def test_stages_and_keys_are_those_of_the_run_or_spec(here: Path, line, expected) -> None:
    assert asked(f"slurm-jobs {line}")[1] == expected


def test_a_value_that_is_a_file_is_left_to_the_shell(here: Path) -> None:
    assert asked("slurm-jobs report --export ") == ("files", [])
    assert asked("slurm-jobs check ~/sp") == ("files", [])


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_argument_of_a_verb_is_completed_or_known_to_be_free(verb: str) -> None:
    parser = cli.verb_parser(verb)
    silent = {
        (action.option_strings or [action.dest])[0]
        for action in parser._actions
        if action.nargs != 0 and action.choices is None and action.help != argparse.SUPPRESS
        if not sources(action)
    }
    assert silent <= TAKES_ANYTHING


@pytest.mark.parametrize(
    "line",
    [
        *("", "slurm-jobs", "slurm-jobs nonsense --", "slurm-jobs logs --rank ", "slurm-jobs 'a"),
        *("slurm-jobs check a b c d ", "slurm-jobs --", "slurm-jobs status \\", "slurm-jobs -h -"),
        "slurm-jobs plan broken.yaml --set stages.",
        "slurm-jobs plan bomb.yaml --set stages.",
        "slurm-jobs plan deep.yaml --set stages.a.b.c.d.e",
        "slurm-jobs logs runs/damaged ",
    ],
)
def test_a_tab_says_nothing_where_there_is_nothing_to_say(here: Path, line: str) -> None:
    (here / "broken.yaml").write_bytes(b"a: [\xff\x00: {")
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    (here / "bomb.yaml").write_text(f"stages: {{s: {{run: train}}}}\n{bomb}")
    (here / "deep.yaml").write_text("[" * 50_000)
    make_run(here / "runs", "damaged")
    (here / "runs" / "damaged" / "spec" / "resolved.json").write_text("[" * 100_000)
    asked(line)


def test_a_tab_asks_no_scheduler_and_loads_nothing_heavy(here: Path) -> None:
    for line in ("slurm-jobs logs ", "slurm-jobs plan captions.yaml --set stages.learn.config."):
        command = [PROGRAM[0], "-X", "importtime", *PROGRAM[1:], "__complete", "bash", line]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        loaded = {row.rpartition("|")[2].strip() for row in result.stderr.splitlines()}
        assert "slurm_jobs.cli.complete" in loaded
        assert not {name for name in loaded if name.partition(".")[0] in HEAVY}
        assert not {name for name in loaded if name.startswith("slurm_jobs.schedulers")}


_COUNTS_LOOKS = """
import runpy, sys
looks = []
def hear(event, values):
    if event in ("open", "os.scandir", "os.listdir") and "many-" in str(values[0]):
        looks.append(values[0])
sys.addaudithook(hear)
sys.argv = ["slurm-jobs", *sys.argv[1:]]
try:
    runpy.run_module("slurm_jobs", run_name="__main__")
finally:
    print(len(looks), len(sys.modules), file=sys.stderr)
"""


def test_a_tab_looks_at_few_of_a_thousand_runs(here: Path) -> None:
    """The seconds are measured by `benchmarks/orchestrator.py`."""
    for number in range(1000):
        make_run(here / "runs", f"many-20261121-{number:06d}-5b9e", train="train")
    program = [PROGRAM[0], "-c", _COUNTS_LOOKS, "__complete", "bash", "slurm-jobs logs m"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    num_looks, num_modules = map(int, result.stderr.split())
    assert len(result.stdout.splitlines()) > 1
    assert num_looks <= 2 * MAX_RUNS
    assert num_modules < 250


def test_names_that_could_steer_a_terminal_or_be_options_are_not_offered(here: Path) -> None:
    for name in ("a\nb", "a\x1b]0;x\x07b", "a\u202eb", "a\udcffb", "-a", "--yes"):
        make_run(here / "runs", f"{name}-20261121-080611-5b9e")
    (here / "spec.yaml").write_text('stages: {"$(touch x)": {shell: a}, "a\\nb": {}, ok: {}}\n')
    (here / "-x.yaml").touch()
    assert asked("slurm-jobs status a") == ("", [])
    assert asked("slurm-jobs status ")[1] == [
        *(f"shapes-{stamp}" for stamp in sorted(STAMPS, reverse=True)),
        *("captions.yaml", "runs/", "spec.yaml", "status/"),
    ]
    assert asked("slurm-jobs logs spec.yaml ")[1] == ["ok"]


def test_a_stages_kind_makes_no_candidate_of_its_own(here: Path) -> None:
    (here / "spec.yaml").write_text(
        'stages: {a: {run: "train\\n--python=/evil"}, b: {run: train}}\n'
    )
    words = [TypedWord(word) for word in ("logs", "spec.yaml", "")]
    assert answer_lines(words, is_bash=False)[1:] == ["a", "b\ttrain"]


def in_shell(shell: str, keys: str, here: Path) -> list[str]:
    if not is_there(shell):
        pytest.skip(f"this machine has no {shell}")
    return words_typed(shell, keys, here, here.parent / "home")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_verb_run_stage_and_key(shell: str, here: Path) -> None:
    keys = "slurm-jobs log\tshapes-20261122\tfe\t--tai\t3"
    expected = ["logs", "shapes-20261122-080611-0a1b", "fetch", "--tail", "3"]
    assert in_shell(shell, keys, here) == expected
    keys = "slurm-jobs statu\t--fre\t"
    assert in_shell(shell, keys, here) == ["status", "--fresh"]
    keys = "slurm-jobs plan capt\t--set stages.le\tresources.nod\t4 --no\t"
    setting = "stages.learn.resources.nodes=4"
    expected = ["plan", "captions.yaml", "--set", setting, "--no-scripts"]
    assert in_shell(shell, keys, here) == expected


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "name",
    [
        "evil'\"$(touch pwned)'\"`touch pwned`; & touch pwned | cat > pwned",
        pytest.param("evil $(touch pwned)", marks=pytest.mark.slow),
        pytest.param("evil `touch pwned`", marks=pytest.mark.slow),
        pytest.param("evil; touch pwned; #", marks=pytest.mark.slow),
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
    found = in_shell(shell, "slurm-jobs check ev\t--js\t", here)
    assert found == ["check", f"{name}.yaml", "--json"]
    assert not (here / "pwned").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_an_open_quote_is_completed_and_closed(shell: str, quote: str, here: Path) -> None:
    (here / "my spec $(touch pwned).yaml").touch()
    found = in_shell(shell, f"slurm-jobs check {quote}my sp\t", here)
    assert found == ["check", "my spec $(touch pwned).yaml"]
    assert not (here / "pwned").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_names_this_program_and_the_line_to_add(shell: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["completion", shell])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"slurm-jobs completion {shell}" in out
    assert "__complete" in out
    assert "eval" not in out


def test_a_program_whose_path_has_shell_characters_is_quoted_in_the_script() -> None:
    text = script("bash", ["/a b/$(touch x)'/slurm-jobs"])
    assert """program=('/a b/$(touch x)'"'"'/slurm-jobs')""" in text
    text = script("fish", ["/a b/$(touch x)'\\/slurm-jobs"])
    assert r"""set -l program '/a b/$(touch x)\'\\/slurm-jobs'""" in text
