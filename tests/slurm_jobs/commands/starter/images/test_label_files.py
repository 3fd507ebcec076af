"""Text files with labels of another task, and captions."""

import pytest

from slurm_jobs.commands.starter.images.label_files import label_kind


@pytest.mark.parametrize(
    ("text", "is_label"),
    [
        ("0 0.5 0.5 0.25 0.3\n", True),
        ("0 0.5 0.5 0.25 0.3\n\n12 1 0 1e-3 .5\n", True),
        ("0 0.5 0.5 0.25 0.3 0.9\n", True),
        ("3 0.1 0.1 0.2 0.1 0.2 0.2 0.1 0.2\n", True),
        ("42\n", False),
        ("", False),
        ("12 people and 3 dogs\n", False),
        ("0 0.5 0.5 0.25 0.3\na cup\n", False),
        (
            "Car 0.00 0 -1.58 587.01 173.33 614.12 200.12 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59",
            True,
        ),
        (
            "imagesource:GoogleEarth\ngsd:0.146\n2753 2408 2861 2385 2888 2468 2805 2502 plane 0",
            True,
        ),
        ("imagesource:GoogleEarth\ngsd:0.146\n", True),
        ("377,117,463,117,465,130,378,130,Genaxis Theatre\n1,2,3,4,5,6,7,8,[06]", True),
        ("377,117,463,117,465,130,378,130,a sign with rather many words on it that go on", True),
        ("0,0.1,0.2,0.3,0.4", True),
        ("person 0.1 0.2 0.3 0.4", True),
        ("0 0.5 0.5", True),
        ("10 20 110 220\n5 6 70 80\n", True),
        ("1 2 3 4 5", False),
        ("0", False),
        ("three of 4 cups, 2 of 3 plates and 1 pan", False),
        ("1920 x 1080", False),
    ],
)
def test_labels_of_boxes_are_distinguished_from_words(text: str, is_label: bool) -> None:
    assert bool(label_kind(text)) == is_label
