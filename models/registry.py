"""Names of provisioning policies to the functions that make them. An unknown name lists the known ones."""
