"""Rules on waiting for data, and what delays the loader. PURE."""
