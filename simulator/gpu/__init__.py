"""Published schedulers of GPU clusters on one trace: one machine, one model of throughput, one price of a restart.

A cluster is nodes with typed GPUs in racks (`cluster`), a job a gang that needs `run_s` seconds on the GPUs that it
asked for (`jobs`). What it does on others follows from `profiles`, so its end follows from where it was put. There are
two clocks. `events` is compiled, and asks a scheduler whenever a job comes, ends, or reaches an instant that it was to
be woken at; jobs there keep the number of GPUs that they asked for. `rounds` asks every so many seconds for the whole
allocation, and there jobs also change size, move and share GPUs. Both charge a job that was stopped its restart, never
hand out a GPU twice unless the policy shares them in time, and give the same `Result`. `registry` names the schedulers,
`run` runs one, `figures` sums a run up. Needs no GPU, draws nothing without a seed, knows no features and no reports.
"""
