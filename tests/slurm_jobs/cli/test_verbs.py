import pytest

from slurm_jobs import cli


@pytest.mark.parametrize(("word", "near"), [("stauts", "status"), ("cancle", "cancel")])
def test_a_misspelt_verb_is_told_with_the_nearest(
    capsys: pytest.CaptureFixture[str], word: str, near: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([word, "runs/a"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"slurm-jobs: error: no verb `{word}`; did you mean `{near}`? (verbs: ")


def test_a_word_that_is_near_no_verb_is_told_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["xyz"])
    said = capsys.readouterr().err
    assert "no verb `xyz` (verbs: init, check, " in said
    assert "did you mean" not in said
