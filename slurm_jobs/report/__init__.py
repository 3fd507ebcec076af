"""From the records of a run to a page that says where the time went.

`inputs` reads; `numbers` decides what the records amount to and `findings`
what to do about it, both pure; `terminal`, `html` and `json_form` show it;
`stage` is the built-in stage that does all of that in turn.
"""
