"""Provisioning policies, one per file.

`models.provisioning.registry` names them, and `models.provisioning.protocol` defines their interface.
"""
