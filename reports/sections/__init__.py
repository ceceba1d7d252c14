"""The sections of the report, one file each, and the parts that some are made of. `reports.build` orders them."""
