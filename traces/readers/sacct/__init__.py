"""The reader of `sacct` dumps: text with any delimiter and any columns, and `sacct --json`. Start at `reader`."""
