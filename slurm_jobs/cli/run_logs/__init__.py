"""The verb `logs`: choice of logs, their ends and their growth."""
