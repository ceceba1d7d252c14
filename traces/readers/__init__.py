"""One reader of a raw log format a file; `traces.ingest` names them and finds the one that fits a file."""
