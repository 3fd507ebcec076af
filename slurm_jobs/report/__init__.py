"""Report of a run from its records: where the time went, and what to change.

`inputs` reads the records. `numbers` makes a report of them, and `rules` find what to change; both
are pure. `report_model` has the values of a report, `terminal` and `html` render it. `stage` is the
built-in stage that runs all of them.
"""
