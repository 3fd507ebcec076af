"""Numbers of a report, made from the records of a run. PURE."""
