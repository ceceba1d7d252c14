"""Published GPU schedulers compared on one trace, with the same cluster, throughput model and restart cost.

A cluster (`cluster`) consists of nodes with typed GPUs in racks. A job (`jobs`) is a gang that needs `run_s` seconds on
the GPUs that it asked for. `profiles` gives its speed on other GPUs, so its end depends on its placement. There are two
clocks:

- `events` is compiled. It calls the scheduler whenever a job arrives, ends, or reaches a requested wake-up time. Jobs
  keep the number of GPUs that they asked for.
- `rounds` asks the scheduler for the whole allocation at fixed intervals. Jobs may also change size, move and share
  GPUs.

Both clocks charge a stopped job for its restart, and return the same `GpuResult`. Neither allocates a GPU twice, unless
the policy shares it in time. A file in `policies` declares a scheduler (`scheduler`), and `registry` names it. `run`
runs one, and `figures` summarises a run. The package needs no GPU, draws nothing without a seed, and imports no
features and no reports.
"""
