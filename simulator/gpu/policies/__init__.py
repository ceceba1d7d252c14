"""The GPU schedulers, one file each: they connect `simulator.gpu.algorithms` to a clock."""
