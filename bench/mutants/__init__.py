"""Mutation tester: changes one small thing in a module at a time, and says which changes no test notices.

`mutations` finds the changes, `aims` says which tests watch over which module, `run` tries them. Two kept libraries
were looked at: mutmut 3 changes code inside functions alone, so no constant and no default of a learner, and wraps
functions in a way that numba cannot compile; cosmic-ray deletes no statement, and starts a new process for each change,
which costs 5 s of imports here.
"""
