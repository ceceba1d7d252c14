"""One provisioning policy a file; `models.registry` names them. What every policy must do is in `models.protocol`."""
