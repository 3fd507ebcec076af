"""Nothing that a stranger wrote steers a terminal, and nothing of ours reaches a pipe but text."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.texts.control_characters import escaped_json, plain
from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.cli.terminal.console import page_console, table_of
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.run.fabricate import end, make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm

ROOT = Path(__file__).resolve().parents[3]
EVIL = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x9b5n\u202egnp.\r<script>alert(1)</script>&\"'"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OUR_MOVES = re.compile(r"\x1b\[(\?25[lh]|2K|1A)|\r(?=\x1b)")
"""By which the live view is drawn anew in its place."""
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(st.text())
def test_plain_text_is_printable_but_for_its_lines_and_tabs(text: str) -> None:
    assert not CONTROLS.search(plain(text))
    assert plain(plain(text)) == plain(text)


def test_what_hides_is_shown_as_its_code() -> None:
    hidden = "\xad\u180e\u200b\u206a\ufff9\U000e0001\U000e0041"
    assert plain(hidden).isascii()
    assert escaped_json(json.dumps(hidden, ensure_ascii=False)).isascii()


@given(st.text())
def test_escaped_json_reads_back_as_it_was(text: str) -> None:
    printed = escaped_json(json.dumps(text, ensure_ascii=False))
    assert not CONTROLS.search(printed)
    assert json.loads(printed) == text


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run whose name, host and reason of failure are a stranger's."""
    make_fake_slurm(tmp_path / "bin", monkeypatch)
    paths = make_run(tmp_path / "runs" / "r-20261121-080611-5b9e", {"a": 1})
    meta = json.loads(paths.run_json.read_text())
    paths.run_json.write_text(json.dumps({**meta, "name": EVIL, "submitted_by": EVIL}))
    submit(paths, "a", 1, "1")
    end(paths, "a", [0], "failed", reason=f"rank 0: {EVIL}")
    log = paths.run_dir / "logs" / "a" / "s00000.a0001.rank-00000.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{EVIL}\nlast line\n")
    return paths


def on_terminal(words: list[str], **environment: str) -> str:
    """What a terminal is sent."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_jobs", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(follower)
    sent = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the end, as Linux tells it
            break
        sent += piece
        if not piece:
            break
    os.close(leader)
    process.wait()
    return sent.decode(errors="replace").replace("\r\n", "\n")


@pytest.mark.parametrize("verb", ["status", "runs", "logs", "watch", "report", "resume"])
def test_a_terminal_is_steered_by_no_name_reason_or_log_line(run: RunPaths, verb: str) -> None:
    words = {"runs": ["--dir", str(run.run_dir.parent)], "resume": [str(run.run_dir), "--dry-run"]}
    sent = on_terminal([verb, *words.get(verb, [str(run.run_dir)])])
    if verb == "watch":
        sent = OUR_MOVES.sub("", sent)
    found = CONTROLS.findall(COLOUR.sub("", sent))
    assert set(found) <= ({"\r"} if verb == "logs" else set()), sent
    assert "Traceback" not in sent


@pytest.mark.parametrize("verb", ["status", "runs", "watch", "report"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_pipe_gets_no_colour_and_no_control_character(
    run: RunPaths, verb: str, as_json: list[str]
) -> None:
    words = {"runs": ["--dir", str(run.run_dir.parent)], "resume": [str(run.run_dir), "--dry-run"]}
    done = subprocess.run(
        [sys.executable, "-m", "slurm_jobs", verb, *words.get(verb, [str(run.run_dir)]), *as_json],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    assert not CONTROLS.search(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
    if as_json:
        json.loads(done.stdout)


def test_a_log_in_a_pipe_is_the_log(run: RunPaths) -> None:
    command = [sys.executable, "-m", "slurm_jobs", "logs", str(run.run_dir), "a"]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    assert out.decode() == f"{EVIL}\nlast line\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("verb", ["status", "logs", "watch", "report"])
def test_no_colour_is_sent_where_none_is_wanted(run: RunPaths, verb: str, environment) -> None:
    sent = on_terminal([verb, str(run.run_dir)], **environment)
    colours = {
        code for code in COLOUR.findall(sent) if re.search(r"[\[;](3[0-8]|4[0-8]|9\d)", code)
    }
    assert colours == set()
    if "TERM" in environment:
        assert "\x1b" not in sent


@pytest.mark.parametrize("verb", ["status", "runs", "watch"])
@pytest.mark.parametrize("word", ["abc ", "/9j/4AAQ", "TOKEN=abc "])
def test_an_unbounded_reason_in_a_record_is_printed_bounded(
    run: RunPaths, verb: str, word: str
) -> None:
    for path in run.completions_dir("a").iterdir():
        values = json.loads(path.read_text())
        reason = f"rank 0: {word * (2_000_000 // len(word))}the end"
        path.write_text(json.dumps({**values, "reason": reason}))
    sent = on_terminal([verb, str(run.run_dir.parent if verb == "runs" else run.run_dir)])
    assert len(sent) < 60_000
    assert "Traceback" not in sent


def test_a_page_breaks_no_unbounded_text_into_lines(capsys: pytest.CaptureFixture[str]) -> None:
    page_console(width=80).print(table_of(["a", "b"], [["x" * 3_000_000, "y " * 1_000_000]]))
    assert len(capsys.readouterr().out) < 10 * MAX_LINE_CHARS


def test_a_wrong_word_is_printed_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["\x1b]0;x\x07"], ["status", "--\x1b[2Jx"], ["status", "\x1b[2Jx"]):
        run_command(*words, code=2)
        said = capsys.readouterr()
        assert not CONTROLS.search(said.out + said.err)


INTERRUPT_AT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["slurm-jobs", *{words!r}]
from slurm_jobs.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("slurm_jobs.cli.main", ["status"]),
        ("argparse", ["status"]),
        ("slurm_jobs.base.errors", ["status"]),
        ("slurm_jobs.cli.runs.status", ["status"]),
        ("slurm_jobs.cli.arguments", ["status"]),
        ("slurm_jobs.commands.run_search.find_run", ["status"]),
        ("slurm_jobs.commands.spec_reading.read_spec", ["check", "configs/demo.yaml"]),
        ("yaml", ["check", "configs/demo.yaml"]),
        ("rich.console", ["plan", "configs/demo.yaml"]),
    ],
)
def test_an_interrupt_while_loading_is_130_and_a_line(module: str, words: list[str]) -> None:
    """A real signal, sent at the moment when a module is looked for."""
    code = INTERRUPT_AT.format(module=module, words=words)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")


def test_an_impatient_second_interrupt_is_130_too() -> None:
    code = INTERRUPT_AT.format(
        module="slurm_jobs.commands.run_search.find_run", words=["status"]
    ).replace(
        "sys.argv", "import atexit; atexit.register(os.kill, os.getpid(), signal.SIGINT)\nsys.argv"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
