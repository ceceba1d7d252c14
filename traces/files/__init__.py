"""Files that several processes share: written whole or not at all, locked, known to be in use. Knows no tables."""
