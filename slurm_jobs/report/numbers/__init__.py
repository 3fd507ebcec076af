"""Numbers of a report from the records of a run. PURE. `build` combines them."""
