"""One pool of equal units, served by the schedulers of `flat/schedulers`: the fast kernels and their plain twin."""
