"""Recording of a rank's time; the report judges it."""
