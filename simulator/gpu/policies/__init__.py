"""The schedulers, one file each: glue between `simulator.gpu.algorithms` and a clock."""
