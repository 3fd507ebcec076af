"""Report as one HTML file that opens offline. PURE except for reading its template."""
