"""The sections of the report, one file each, and files with parts of a section. `reports.build` orders them."""
