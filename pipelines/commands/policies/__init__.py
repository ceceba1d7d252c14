"""`baton train`, `baton evaluate`, `baton tune`: parse options, call `models`, write rows."""
