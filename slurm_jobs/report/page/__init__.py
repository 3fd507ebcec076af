"""Report as one HTML page: its elements, charts, and sections."""
