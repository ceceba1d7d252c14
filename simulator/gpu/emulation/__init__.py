"""Emulated GPUs: a training script without a GPU takes the time and the memory of a profiled model.

`describe` writes what is emulated, and `script.emulated_gpu` does it in the script.
"""
