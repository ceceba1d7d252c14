"""Provisioning policies, one per file. `models.registry` names them; `models.protocol` defines their interface."""
