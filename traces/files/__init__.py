"""Files that several processes share: atomic writes, locks, and folders in use. Contains nothing about tables."""
