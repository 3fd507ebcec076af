"""What is said of generated answers."""

import pytest

from pipeline.training.evaluate import Generation, summarise


def test_summary_counts_exact_answers_and_distinct_references():
    def generation(row, reference, text):
        return Generation(
            row=row, key="", reference=reference, generated=text, exact=reference == text
        )

    rows = [generation(0, "a", "a"), generation(1, "a", "b"), generation(2, "c", "c")]
    summary = summarise(rows, num_rejected=1)
    assert summary["exact_match"] == pytest.approx(2 / 3)
    assert (summary["num_distinct_references"], summary["num_rejected"]) == (2, 1)
    assert summarise([], num_rejected=0)["exact_match"] is None
