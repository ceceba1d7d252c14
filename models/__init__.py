"""Provisioning policies, their environment, training, evaluation, artifacts and tracking.

Only `models.tracking.store`, `models.tracking.runs` and `models.tracking.versions` import `mlflow`, and only the
learners import torch. Both do so inside functions. This package imports `agent`, `features`, `simulator` and `traces`;
never `assets`, `pipelines` or `reports`.
"""
