"""Rule on a data set without pictures. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome


@rule("no-pictures", "no sample has a picture (high), unless the config has `text_only`")
def no_pictures(data: DataNumbers) -> Finding | RuleOutcome:
    """Find a data set without pictures: mostly their key is not one that is read."""
    num_samples, num_text = data.num_samples, data.num_text_samples
    if not num_samples.value or num_text.value is None:
        return abstain(num_samples.missing or num_text.missing or "there are no samples")
    counts = f"{units.quantity(num_text)} of {units.quantity(num_samples)} samples have no picture"
    if data.is_text_meant or num_text.value < num_samples.value:
        return clear(counts)
    return Finding(
        severity="high",
        title="no sample has a picture",
        text="The model learns to answer without seeing, because no key with a picture was read.",
        evidence=(counts,),
        next_knob="Name the images' key with `columns: {image: KEY}`, or set `text_only: true` if "
        "you mean text alone.",
        ceiling="no gain in speed, but a model that sees",
    )
