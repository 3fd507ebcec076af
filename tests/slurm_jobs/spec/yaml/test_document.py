"""Places of values in a YAML file, and their names as users write them."""

from slurm_jobs.spec.yaml.document import Place, path_text
from tests.slurm_jobs.spec.yaml.read_text import read


def test_path_text_is_written_as_users_write_it() -> None:
    assert path_text(("stages", "train", "setup", 0)) == "stages.train.setup[0]"


def test_an_empty_file_has_no_value() -> None:
    assert read("").value is None
    assert read("# nothing\n").value is None


def test_places_are_those_of_keys_and_values() -> None:
    document = read("a:\n  b:   1\n  c: [x,\n      y]\n")
    assert document.key_places["a", "b"] == Place(line=2, column=3)
    assert document.value_places["a", "b"] == Place(line=2, column=8)
    assert document.value_places["a", "c", 1] == Place(line=4, column=7)
