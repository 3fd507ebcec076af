"""Files of other forms than a list of rows: one JSON object whose lists are joined by ids.

`find_container` in `json_container.py` recognises them; each kind is a file with the keys it reads.
"""
