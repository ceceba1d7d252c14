"""The folder that `baton emulate` puts on the path of a script. It holds `emulated_gpu`, which must import alone."""
