import pytest

from slurm_jobs.cli import main
from tests.slurm_jobs.cli.command import run_command


@pytest.mark.parametrize(("word", "near"), [("stauts", "status"), ("cancle", "cancel")])
def test_a_misspelt_verb_is_told_with_the_nearest(
    capsys: pytest.CaptureFixture[str], word: str, near: str
) -> None:
    run_command(word, "runs/a", code=2)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"slurm-jobs: error: no verb `{word}`; did you mean `{near}`? (verbs: ")


def test_a_word_that_is_near_no_verb_is_told_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["xyz"])
    said = capsys.readouterr().err
    assert "no verb `xyz` (verbs: init, check, " in said
    assert "did you mean" not in said


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("report", "--expotr", "F", "R"), "no option `--expotr`; did you mean `--export`?"),
        (("report", "--expotr=F", "R"), "no option `--expotr`; did you mean `--export`?"),
        (("probe", "s.yaml", "--node", "3"), "no option `--node`; did you mean `--nodes`?"),
        (("status", "--jsn"), "no option `--jsn`; did you mean `--json`?"),
        (("status", "--html"), "no option `--html`"),
        (("report", "a", "b"), "`b` is more than it takes"),
    ],
)
def test_a_misspelt_option_is_told_with_the_nearest_of_its_verb(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], near: str
) -> None:
    run_command(*words, code=2)
    assert capsys.readouterr().err.splitlines()[-1] == f"slurm-jobs {words[0]}: error: {near}"


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_option_of_a_verb_can_be_suggested(verb: str) -> None:
    parser = main.build_parser([verb]).verb
    options = {name for action in parser._actions for name in action.option_strings}
    known = main._OPTION.findall(parser.format_usage())
    assert {name for name in options if name.startswith("--")} - {"--help"} <= set(known)
