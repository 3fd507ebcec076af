"""A spec's text is changed in its place, and all else stays as it was."""

import pytest

from slurm_jobs.spec.overrides.text_edits import EditError, edit_text, inline_text
from slurm_jobs.spec.yaml.reader import read_yaml

TEXT = """\
# a spec
name: x   # its name
stages:
  train:
    run: train
    config:
      # threads
      num_loader_threads: 1  # one a rank
      model: {vision: {hidden_size: 8}, language: {hidden_size: 8}}
      optimizer:
        learning_rate: 1e-3   # high

  # what comes after
  report: {run: report, after: train}
"""
CONFIG = ("stages", "train", "config")


def edited(text: str, *changes: tuple[tuple[str | int, ...], object]) -> str:
    """And it means what it meant, with the changes."""
    wanted = read_yaml(text, "f").value
    for path, value in changes:
        found = wanted
        for step in path[:-1]:
            if isinstance(found, dict) and found.get(step) is None:
                found[step] = {}
            found = found[step]
        found[path[-1]] = value
    new = edit_text(text, changes)
    document = read_yaml(new, "f")
    assert document.problems == ()
    assert document.value == wanted
    return new


def test_a_value_is_replaced_in_place_and_its_comment_survives():
    new = edited(TEXT, ((*CONFIG, "num_loader_threads"), 4))
    assert new == TEXT.replace("num_loader_threads: 1  #", "num_loader_threads: 4  #")


def test_a_text_with_tabs_after_its_values_keeps_them():
    new = edited("a:\t1\t# one\nb: {c:\t2\t}\n", (("a",), 3), (("b", "c"), 4), (("d",), 5))
    assert new == "a:\t3\t# one\nb: {c:\t4\t}\nd: 5\n"


def test_a_new_key_is_put_at_the_end_of_its_mapping():
    new = edited(TEXT, ((*CONFIG, "num_prefetch_batches"), 8))
    assert "# high\n      num_prefetch_batches: 8\n\n  # what comes after" in new


def test_a_mapping_that_is_missing_is_made():
    new = edited(TEXT, ((*CONFIG, "sharding", "reshard_after_forward"), False))
    assert "      sharding: {reshard_after_forward: false}\n" in new


def test_flow_mappings_get_a_key_before_their_brace():
    new = edited(TEXT, (("stages", "report", "retries"), 1))
    assert "report: {run: report, after: train, retries: 1}" in new


def test_several_changes_see_each_other():
    new = edited(
        TEXT,
        ((*CONFIG, "staging", "mode"), "off"),
        ((*CONFIG, "staging", "num_threads"), 2),
    )
    assert 'staging: {mode: "off", num_threads: 2}' in new


@pytest.mark.parametrize("empty", ["{}", "null", "~", ""])
def test_an_empty_mapping_takes_its_first_key(empty: str):
    new = edited(f"a:\n  b: {empty}\nc: 1\n", (("a", "b", "d"), 2))
    assert "b: {d: 2}" in new


def test_items_of_lists_are_found():
    text = "phases:\n- name: a\n  num_steps: 3 # few\n- {name: b}\n"
    new = edited(text, (("phases", 0, "num_microbatches"), 2), (("phases", 1, "x"), 1))
    assert new == (
        "phases:\n- name: a\n  num_steps: 3 # few\n  num_microbatches: 2\n- {name: b, x: 1}\n"
    )


def test_a_text_without_a_last_newline_or_of_windows_keeps_its_endings():
    assert edited("a:\n  b: 1", (("a", "c"), 2)) == "a:\n  b: 1\n  c: 2"
    assert edit_text("a:\r\n  b: 1\r\n", [(("a", "c"), 2)]) == "a:\r\n  b: 1\r\n  c: 2\r\n"


def test_an_alias_gives_way_to_a_value_and_is_not_edited_within():
    text = "a: &x {k: 1}\nb: *x\n"
    assert edit_text(text, [(("b",), 2)]) == "a: &x {k: 1}\nb: 2\n"
    with pytest.raises(EditError, match=r"line 2: \*x is not changed in one place"):
        edit_text(text, [(("b", "k"), 2)])


def test_a_value_with_an_anchor_keeps_it_for_its_aliases():
    text = "a: &one {x: 1}\nb: *one\nc: &two 3\nd: *two\n"
    assert edit_text(text, [(("a",), {"x": 2}), (("c",), 4)]) == (
        "a: &one {x: 2}\nb: *one\nc: &two 4\nd: *two\n"
    )


@pytest.mark.parametrize(
    ("text", "path", "edited"),
    [
        ("a: &x\nb: *x\n", "a", "a: &x 4\nb: *x\n"),
        ("a: &x\nb: *x\n", "a.c", "a: &x {c: 4}\nb: *x\n"),
        ("{a: &x , b: *x}\n", "a", "{a: &x 4 , b: *x}\n"),
        ("a: !!int &x 3\nb: *x\n", "a", "a: !!int &x 4\nb: *x\n"),
        ("a: &x # why\n  3\nb: *x\n", "a", "a: &x # why\n  4\nb: *x\n"),
        ("k: &z {q: 1}\na:\n  y: *z\n", "a.x", "k: &z {q: 1}\na:\n  y: *z\n  x: 4\n"),
        ("k: &z {q: 1}\na: {y: *z}\n", "a.x", "k: &z {q: 1}\na: {y: *z, x: 4}\n"),
    ],
)
def test_anchors_and_aliases_stay_where_they_are(text: str, path: str, edited: str):
    assert edit_text(text, [(tuple(path.split(".")), 4)]) == edited


def test_an_edit_after_one_that_left_no_yaml_is_refused():
    text = "a: 1\nb: {c: 1}\n"
    with pytest.raises(EditError, match="the edit before left invalid YAML"):
        edit_text(text, [(("b", "c: [}"), 2), (("a",), 2)])


def test_what_has_no_place_is_refused():
    for text, path in (
        ("a: 1\n", ("a", "b")),
        ("a: |\n  text\n", ("b",)),
        ("a:\n  b: 1\n", ("a",)),
        ("a: {k: &y 1}\nb: *y\n", ("a",)),
    ):
        with pytest.raises(EditError):
            edit_text(text, [(path, 2)])


def test_text_that_means_something_else_is_quoted():
    assert [inline_text(v) for v in ("off", "ddp", "1e3", True, None, 0.5)] == [
        '"off"', "ddp", '"1e3"', "true", "null", "0.5",
    ]  # fmt: skip
