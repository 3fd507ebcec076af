"""Report of a run from its records: where the time went, and what to change.

`inputs` reads the records. `numbers` computes what they amount to, and `findings` what to do about
it; both are pure. `terminal`, `html` and `json_form` render the report. `stage` is the built-in
stage that runs all of them.
"""
