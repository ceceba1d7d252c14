"""Provisioning policies, the environment they learn in, their evaluation, the artifact they leave as, and tracking.

`mlflow` is imported in `models.tracking.store`, `models.tracking.runs` and `models.tracking.versions` alone, torch in
the learners alone, both inside functions. Imports `agent`, `features`, `simulator` and `traces`; never `assets`,
`pipelines` or `reports`.
"""
