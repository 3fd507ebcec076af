"""Values on one line are read back as they were."""

from typing import Any

import pytest

from slurm_jobs.spec.yaml.flow_style import flow_text
from slurm_jobs.spec.yaml.reader import read_yaml


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("gpu", "gpu"),
        ("data/{000..099}.tar", '"data/{000..099}.tar"'),
        ("off", '"off"'),
        ("1e-4", '"1e-4"'),
        ("", '""'),
        ("a: b # c\n", r'"a: b # c\n"'),
        ([1, None, True, 0.5], "[1, null, true, 0.5]"),
        ({"use": ["tensorboard", "a, b"]}, '{use: [tensorboard, "a, b"]}'),
    ],
)
def test_what_is_shown_is_read_back_and_has_quotes_where_it_needs_them(
    value: Any, text: str
) -> None:
    assert flow_text(value) == text
    read = read_yaml(f"[{text}]", "f")
    assert (read.value, read.problems) == ([value], ())
