"""Models fitted on a trace: provisioning policies, futures, queue time, one release line, tracking, and what-ifs.

The rooms import in this order: `release`, `what_if` and `queue_time`, `study`, `tracking`, `provisioning`. Only
`models.tracking` imports `mlflow`, and only learners import torch. Both do so inside functions. This package imports
`agent`, `features`, `simulator` and `traces`; never `assets`, `pipelines` or `reports`.
"""
