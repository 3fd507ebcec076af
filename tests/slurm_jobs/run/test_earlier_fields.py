"""Work of earlier plans that differs from the present in code only."""

from __future__ import annotations

from slurm_jobs.plan.fingerprints import hash_of
from slurm_jobs.run.earlier_fields import EarlierFields

FIELDS = {"code": "c1", "config.a": "1", "after.up": hash_of("up-1")}
PLANS = [
    {
        "stages": [
            {"name": "up", "fingerprint": "up-1", "fields": {"code": "c1", "shell": "s"}},
            {"name": "up", "fingerprint": "up-0", "fields": {"code": "c1", "shell": "other"}},
            {"name": "a", "fingerprint": "a-1", "fields": FIELDS},
            {"name": "a", "fingerprint": "a-0", "fields": {**FIELDS, "after.up": hash_of("up-0")}},
            {"name": "a", "fingerprint": "a-old", "fields": {}},
        ]
    }
]


def test_work_counts_as_the_same_but_for_code_through_its_parents() -> None:
    earlier = EarlierFields(PLANS)
    now = {
        "up": {"code": "c2", "shell": "s"},
        "a": {"code": "c2", "config.a": "1", "after.up": hash_of("up-2")},
    }
    assert earlier.is_same_but_code("a", "a-1", now)
    assert not earlier.is_same_but_code("a", "a-0", now)  # its parent had another command
    assert not earlier.is_same_but_code("a", "a-old", now)
    assert not earlier.is_same_but_code("a", "unknown", now)
    assert not earlier.is_same_but_code("a", "a-1", {**now, "a": {**now["a"], "config.a": "2"}})
