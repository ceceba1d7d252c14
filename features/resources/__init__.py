"""Resources of a cluster: its capacity, the resource that it is about, and the use of each."""
