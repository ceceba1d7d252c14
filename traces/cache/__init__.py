"""What a result is made from: the import closure of the code that computes it, and digests of its inputs."""
