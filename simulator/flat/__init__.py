"""One pool of equal units, scheduled by `fifo`, `easy`, `conservative` or `mirage`: the fast kernels and their twin."""
