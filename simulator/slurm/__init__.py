"""A Slurm controller in arrays: its inputs (`world`), its compiled clock (`kernel`), its plain twin (`reference`).

Defined in docs/schedulers/slurm.md. May be imported by everything above `simulator`; imports nothing from there.
"""
