"""Parts of a resume: what is kept, what runs again with which requests, and why."""
