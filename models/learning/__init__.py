"""What several policies share: the rows and inputs that they learn from, networks and trees as arrays, the manifest."""
