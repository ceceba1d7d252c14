"""One file a flat scheduler: its definition, which is also its page in docs/schedulers, and its compiled pass.

Each module ends in `SCHEDULER`, a `simulator.flat.scheduler.Scheduler`; `simulator.names.SCHEDULERS` lists the modules.
The clock and the state are elsewhere, in `simulator.flat`. Imported by `simulator.flat.dispatch` alone.
"""
