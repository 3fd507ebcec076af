"""Rules on the numbers of a report, one function each. PURE. `find` applies them all."""
