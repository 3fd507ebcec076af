"""The run that a user means by a name, a folder, a spec, or no name."""

import errno
import os
import re
from pathlib import Path

import pytest

from slurm_jobs.base.errors import FileError, InputError, SpecError
from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.commands.run_search.remembered_dirs import remember
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.commands.run_search.named_runs import make, runs
from tests.slurm_jobs.commands.unmounted import remember_unmounted
from tests.slurm_jobs.run.closed import close

__all__ = ["runs"]

SPEC = "name: {name}\ncluster: local\nstages:\n  a:\n    shell: 'true'\n"


def test_a_spec_means_its_newest_run_and_never_that_of_a_longer_name(runs: Path) -> None:
    make(runs, "words-20250101-000000-aaaa", age_s=20)
    newest = make(runs, "words-20250102-000000-bbbb", age_s=10)
    make(runs, "words-big-20250103-000000-cccc")
    make(runs, "words-20250103-000000-dddd-20250103-000000-eeee")
    Path("words.yaml").write_text(SPEC.format(name="words"))
    assert find_run("words.yaml") == newest


@pytest.mark.parametrize(
    "more", ["clustr: local\n", "limit: x\n", "code: [missing]\n", "cluster: no.yaml\n"]
)
def test_a_spec_with_problems_still_means_its_newest_run(runs: Path, more: str) -> None:
    newest = make(runs, "words-20250102-000000-bbbb")
    Path("words.yaml").write_text(SPEC.format(name="words") + more)
    assert find_run("words.yaml") == newest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "words.yaml:1:8: not valid YAML"),
        ("", "words.yaml:1:1: key `name` is missing"),
        ("name: a b", "words.yaml:1:7: name: `a b` is not a valid name"),
        ("name: a\nname: b", "words.yaml:2:1: key `name` is repeated"),
        ("name: words\nruns_dir: $NOT_SET/runs", "words.yaml:2:11: runs_dir: "),
    ],
)
def test_a_spec_without_a_valid_name_or_folder_of_runs_is_refused(
    runs: Path, text: str, message: str
) -> None:
    Path("words.yaml").write_text(text)
    with pytest.raises(SpecError, match=message):
        find_run("words.yaml")


def test_a_spec_that_was_never_submitted_has_no_run(runs: Path) -> None:
    make(runs, "words-big-20250103-000000-cccc")
    Path("words.yaml").write_text(SPEC.format(name="words"))
    with pytest.raises(InputError, match="no run of `words`"):
        find_run("words.yaml")


def test_a_spec_says_itself_where_its_runs_are(runs: Path, tmp_path: Path) -> None:
    elsewhere = make(tmp_path / "elsewhere", "words-20250101-000000-aaaa")
    make(runs, "words-20250102-000000-bbbb")
    Path("words.yaml").write_text(SPEC.format(name="words") + "runs_dir: elsewhere\n")
    assert find_run("words.yaml") == elsewhere


def test_a_folder_means_itself(runs: Path, tmp_path: Path) -> None:
    run = make(tmp_path / "other", "words-20250101-000000-aaaa")
    assert find_run(str(run)) == run
    assert find_run("other/words-20250101-000000-aaaa") == run


@pytest.mark.parametrize("text", ["words-20250101-000000-aaaa", "words-20250101", "wo"])
def test_a_run_is_found_by_its_id_or_the_start_of_one(runs: Path, text: str) -> None:
    run = make(runs, "words-20250101-000000-aaaa")
    make(runs, "images-20250101-000000-aaaa")
    assert find_run(text) == run


def test_a_start_that_several_share_is_refused_with_their_names(runs: Path) -> None:
    names = ["words-20250101-000000-aaaa", "words-20250102-000000-bbbb"]
    for name in names:
        make(runs, name)
    with pytest.raises(InputError, match=re.escape(", ".join(names))):
        find_run("words")


def test_no_name_means_the_newest_run(runs: Path) -> None:
    make(runs, "words-20250102-000000-bbbb", age_s=10)
    newest = make(runs, "images-20250101-000000-aaaa", age_s=5)
    (runs / "notes").mkdir()
    assert find_run(None) == newest


@pytest.mark.parametrize("text", [None, "words", "nosuch.yaml"])
def test_where_there_is_no_run_the_error_says_where_it_looked(runs: Path, text: str | None) -> None:
    with pytest.raises(InputError, match=str(runs)) as caught:
        find_run(text)
    assert "SLURM_JOBS_RUNS_DIR" in str(caught.value)


def test_the_environment_says_where_runs_are(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(runs, "words-20250102-000000-bbbb")
    run = make(tmp_path / "shared", "words-20250101-000000-aaaa", age_s=100)
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", "shared")
    assert find_run(None) == find_run("words") == run


def test_a_folder_of_runs_is_no_run_and_one_of_them_is_named(runs: Path, tmp_path: Path) -> None:
    make(tmp_path / "shared", "words-20250101-000000-aaaa", age_s=5)
    newest = make(tmp_path / "shared", "images-20250102-000000-bbbb")
    for text in ("shared", str(tmp_path / "shared")):
        with pytest.raises(InputError, match="is a folder of runs; name one") as caught:
            find_run(text)
        assert str(caught.value).endswith(f"{text}/{newest.name}")
    words = make(runs, "shared-20250101-000000-aaaa")
    assert find_run("shared") == words  # the start of a run's id


def test_where_several_begin_so_the_error_says_what_means_the_newest(runs: Path) -> None:
    make(runs, "words-20250101-000000-aaaa")
    make(runs, "words-20250102-000000-bbbb")
    with pytest.raises(InputError, match="; a spec's file means its newest run"):
        find_run("words")
    with pytest.raises(
        InputError, match=r"begins with it; did you mean `words`\? `slurm-jobs runs"
    ):
        find_run("wards")
    with pytest.raises(InputError, match="begins with it; `slurm-jobs runs` lists them"):
        find_run("images")


def test_the_name_of_a_spec_means_its_run_and_no_tuning_or_probe(runs: Path) -> None:
    run = make(runs, "words-20250101-000000-aaaa")
    make(runs, "words-tune-20250102-000000-bbbb")
    make(runs, "words-probe-20250103-000000-cccc")
    assert find_run("words") == run
    make(runs, "words-20250104-000000-dddd")
    with pytest.raises(InputError, match="-aaaa, words-20250104-000000-dddd"):
        find_run("words")


def test_a_name_with_the_folder_of_runs_before_it_is_the_start_of_a_run(runs: Path) -> None:
    run = make(runs, "words-20250101-000000-aaaa")
    assert find_run(f"{runs}/words-2025") == run


@pytest.mark.parametrize("text", [None, "wo"])
def test_a_closed_folder_of_runs_is_not_taken_for_an_empty_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    make(runs, "words-20250101-000000-aaaa")
    close(runs, monkeypatch)
    with pytest.raises(PermissionError, match=str(runs)):
        find_run(text)


def test_the_closed_runs_of_others_in_a_shared_folder_are_passed_over(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make(runs, "words-20250101-000000-aaaa", age_s=10)
    close(make(runs, "words-20250102-000000-bbbb"), monkeypatch)
    assert find_run(None) == find_run("words") == own


def test_a_folder_that_is_neither_a_run_nor_a_data_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    with pytest.raises(InputError, match=r"pictures is neither a run .* nor a finished data set"):
        find_run(str(tmp_path / "pictures"))


def test_a_folder_that_is_no_prefix_of_a_run_is_refused(runs: Path) -> None:
    Path("words").mkdir()
    with pytest.raises(InputError, match=f"no run in {runs} begins with it; .*SLURM_JOBS_RUNS_DIR"):
        find_run("words")


def test_a_data_set_in_place_of_a_run_is_refused_as_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    with pytest.raises(InputError, match="is a data set, not a run: `verify`, `samples` and"):
        find_run(str(tmp_path))


RUN = "words-20250101-000000-aaaa"


def test_a_run_whose_file_system_is_away_is_reported_with_its_folder(
    runs: Path, tmp_path: Path
) -> None:
    away = tmp_path / "scratch/ada/runs" / RUN
    for text in (str(away), str(away.parent / "r"), f"scratch/ada/runs/{RUN}"):
        with pytest.raises(FileError, match=f"cannot be read: {tmp_path}/scratch: there is no"):
            find_run(text)
    away.mkdir(parents=True)  # as where a disk is not mounted
    with pytest.raises(FileError, match=f"{RUN}: it is there, and has no run.json"):
        find_run(str(away))
    away.rmdir()
    with pytest.raises(FileError, match=f"{away.parent}: no run is in it"):
        find_run(str(away))
    make(away.parent, "words-20250101-000000-bbbb")
    with pytest.raises(InputError, match="no run `"):  # it was removed, or never was
        find_run(str(away))
    with pytest.raises(FileError, match=f"{RUN} cannot be read: {runs}: there is no such folder"):
        find_run(RUN)


def test_a_missing_folder_of_runs_is_named_as_missing(runs: Path) -> None:
    Path("words.yaml").write_text(SPEC.format(name="words"))
    for text in (None, "words.yaml"):
        with pytest.raises(InputError, match=f"{runs}, which does not exist.* submit ") as caught:
            find_run(text)
        assert "server" not in str(caught.value)
    runs.touch()
    for text in (None, "words.yaml"):
        with pytest.raises(InputError, match=f"{runs}, which is not a folder"):
            find_run(text)
    with pytest.raises(FileError, match=f"cannot be read: {runs}: it is not a folder"):
        find_run(f"runs/{RUN}")


def test_a_link_to_a_folder_that_is_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to("/scratch-away/runs")
    for text in (None, RUN, f"runs/{RUN}", f"{tmp_path}/runs/{RUN}"):
        with pytest.raises(FileError, match=f"{tmp_path}/runs: a link to /scratch-away/runs"):
            find_run(text)


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("lnk", "lnk"),
        ("lnk", "./lnk"),
        ("spec.yaml", "spec.yaml"),
        (f"runs/{RUN}", RUN),
        (f"runs/{RUN}", "words"),
        (f"runs/{RUN}", f"runs/{RUN}"),
        (f"runs/{RUN}", "runs/words-2025"),
    ],
)
def test_a_link_to_a_run_that_is_away_is_named(
    runs: Path, tmp_path: Path, link: str, text: str
) -> None:
    make(runs, "images-20250101-000000-aaaa")
    Path(link).symlink_to("/scratch-away/r")
    with pytest.raises(FileError, match=f"{tmp_path}/{link}: a link to /scratch-away/r, which"):
        find_run(text)


@pytest.mark.parametrize("text", ["a" * 5000, "runs/" + "a" * 300, "ä" * 200, "a/" * 4000])
def test_a_name_that_no_file_can_have_is_not_printed_whole(runs: Path, text: str) -> None:
    make(runs, "words-20250101-000000-aaaa")
    with pytest.raises(InputError, match="no run `") as caught:
        find_run(text)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ESTALE, "file server does not answer"),
        (errno.EIO, "file server does not answer"),
        (errno.ENOTCONN, "file server does not answer"),
        (errno.EACCES, "ask its owner"),
    ],
)
def test_a_folder_that_the_system_cannot_look_into_is_none_without_runs(
    runs: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    run = make(runs, RUN)
    real = os.stat

    def away(path: object, **words: object) -> os.stat_result:
        if str(path).startswith(str(run)):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, **words)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "stat", away)
    with pytest.raises(FileError, match=f"{run}: {os.strerror(number)}.*{advice}"):
        find_run(str(run))


def test_an_id_is_also_looked_up_in_the_folders_of_earlier_submits(
    runs: Path, tmp_path: Path
) -> None:
    far = make(tmp_path / "scratch", "words-20250101-000000-aaaa")
    make(runs, "images-20250101-000000-aaaa")
    remember(tmp_path / "scratch", tmp_path / "project")
    assert find_run("words") == find_run(far.name) == far
    near = make(runs, "words-20250101-000000-bbbb", age_s=100)
    assert find_run("words") == near
    make(tmp_path / "scratch", "tokens-20250101-000000-aaaa")
    make(tmp_path / "scratch", "tokens-20250101-000000-bbbb")
    with pytest.raises(InputError, match=f"{tmp_path}/scratch/tokens-20250101-000000-aaaa, "):
        find_run("tokens")


def test_the_start_of_an_id_finds_no_run_in_another_folder(runs: Path, tmp_path: Path) -> None:
    far = make(tmp_path / "scratch", "big-20250101-000000-aaaa")
    make(runs, "images-20250101-000000-aaaa")
    remember(tmp_path / "scratch", tmp_path / "project")
    with pytest.raises(InputError, match=f"these begin with it: {far}. Name the folder"):
        find_run("b")


@pytest.mark.parametrize("text", ["b", "b:3"])
def test_a_stage_in_the_place_of_a_run_is_called_a_stage(
    runs: Path, tmp_path: Path, text: str
) -> None:
    make(tmp_path / "scratch", "big-20250101-000000-aaaa")
    remember(tmp_path / "scratch", tmp_path / "project")
    newest = make(runs, "images-20250101-000000-aaaa")
    RunPaths(newest).plans_dir.mkdir()
    RunPaths(newest).plan(1).write_text('{"stages": [{"name": "a"}, {"name": "b"}]}')
    with pytest.raises(InputError, match=f"no run `{text}`: `b` is a stage of .* {newest}"):
        find_run(text)


def test_a_folder_of_runs_that_was_not_searched_is_named(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_unmounted(tmp_path / "unmounted/ada/runs", tmp_path, monkeypatch)
    for text in (None, "words"):
        with pytest.raises(InputError, match=r"submitted elsewhere, but .*/unmounted/ada/runs can"):
            find_run(text)
    make(runs, "images-20250101-000000-aaaa")
    with pytest.raises(InputError, match=r"; .*/unmounted/ada/runs could not be searched: No such"):
        find_run("words")
