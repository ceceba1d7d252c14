"""The flat schedulers, one file each: the definition, which is also its page in docs/schedulers, and the compiled pass.

Each module ends with `SCHEDULER`, a `simulator.flat.scheduler.Scheduler`. `simulator.names.SCHEDULERS` lists the
modules. The clock and the state are in `simulator.flat`. Only `simulator.flat.dispatch` imports these modules.
"""
