"""The slow twin of the `slurm` scheduler: docs/schedulers/slurm.md in obvious Python, section by section.

Written from that page and sharing no code with the kernel, which is tested against it job by job. `state` holds
everything that the twin knows; the other files are functions over it, and import one another downwards only:
`clock` > `passes` > `moves` > `rules` > `priority` > `placement` > `state`.
"""
