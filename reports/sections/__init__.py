"""The sections of the report, one file each. `reports.build` orders them."""
