"""The twin of the `slurm` scheduler: docs/schedulers/slurm.md in plain Python, section by section.

It is written from that page and shares no code with the kernel; tests compare the two job by job. `state` holds all
data. The other files are functions over it and import one another only downwards:
`clock` > `passes` > `moves` > `rules` > `priority` > `placement` > `state`.
"""
