"""Values that a report consists of. PURE."""
