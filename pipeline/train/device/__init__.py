"""Device of a rank: its GPU or CPU, precision, memory, nearby cores, and what a card supports."""
