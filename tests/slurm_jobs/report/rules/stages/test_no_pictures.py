"""A data set without pictures is a finding unless it is meant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base.quantities import known, missing
from slurm_jobs.report.rules.stages.no_pictures import no_pictures
from tests.slurm_jobs.report.builders import report_from, with_stage


@pytest.mark.parametrize(
    ("num_text", "is_meant", "kind"),
    [
        (known(9970, "count"), False, "Finding"),
        (known(9970, "count"), True, "RuleOutcome clear"),
        (known(9969, "count"), False, "RuleOutcome clear"),
        (known(0, "count"), False, "RuleOutcome clear"),
        (
            missing("count", "4 slices did not return num_text_samples"),
            False,
            "RuleOutcome abstained",
        ),
    ],
)
def test_a_data_set_without_pictures_is_found_unless_it_is_meant(
    report_of, num_text, is_meant, kind
):
    data = replace(
        report_of().data[0],
        num_samples=known(9970, "count"),
        num_text_samples=num_text,
        is_text_meant=is_meant,
    )
    answer = no_pictures(data)
    assert f"{type(answer).__name__} {getattr(answer, 'outcome', '')}".strip() == kind
    if kind == "Finding":
        assert (answer.rule_id, answer.severity) == ("no-pictures:preprocess", "high")
        assert answer.evidence == ("9,970 of 9,970 samples have no picture",)


@pytest.mark.parametrize(
    ("own", "consolidating", "is_meant"),
    [
        ({}, {}, False),
        ({"text_only": True}, {}, True),
        ({}, {"text_only": True}, True),
        ({"text_only": True}, {"text_only": False}, False),
    ],
)
def test_consolidate_decides_before_preprocess_on_text_alone(
    inputs_of, own, consolidating, is_meant
):
    inputs = with_stage(inputs_of(), "consolidate", config=consolidating)
    report = report_from(with_stage(inputs, "preprocess", config=own))
    assert report.data[0].is_text_meant is is_meant
