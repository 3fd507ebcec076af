"""Step records of trainings: attempts, phases, pace. PURE."""
