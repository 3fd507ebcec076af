"""The report as one HTML file that opens offline: PURE but for its template."""
