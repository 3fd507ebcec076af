"""Rules on stages: their data, their jobs, their requests. PURE."""
