"""Text of foreign origin, made safe to record and to print."""
