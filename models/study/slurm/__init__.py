"""The inputs of the world `slurm`: files that describe a Slurm cluster, or limits inferred from its log; its pairs."""
