"""Calibrate one cluster's record: choose the part to read and the months to judge, and make the tables.

The arithmetic is in `simulator.recorded`; `models.study.extent` limits the part of a long record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from models.study import extent
from models.study.inputs import declared_dates, read_record
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from simulator.recorded.calibration.judge import Month
    from simulator.recorded.calibration.study import CalibrationStudy
    from simulator.recorded.record import RecordedTrace

MECHANISMS_EVERY = 8  # of the last month's jobs: enough to rank the contributions of calibration's mechanisms


def calibrate(data: DataFolder, settings: ClusterSettings) -> CalibrationStudy:
    """Judge every month of `months_to_judge`, calibrated on what came before it; no rows without a month."""
    from simulator.recorded.calibration.study import study

    record, months = months_to_judge(data, settings)
    every = extent.MECHANISMS_EVERY if months and months[-1].is_near else MECHANISMS_EVERY
    return study(record, settings.name, months, mechanisms_every=every)


def months_to_judge(data: DataFolder, settings: ClusterSettings) -> tuple[RecordedTrace, list[Month]]:
    """The record that calibration reads and the months that it judges; `models.study.extent` cuts a long one."""
    from simulator.recorded.calibration.judge import months

    from_s = extent.first_calibrated_s(data, settings.name)
    record = read_record(data, settings.name, from_s)
    declared_from_s = declared_dates(settings).fit_from_s
    if from_s is None:
        return record, months(record, declared_from_s)
    newest = months(record, max(from_s, declared_from_s or 0))[-extent.MOST_MONTHS :]
    counts = [int(np.count_nonzero(month.of(record))) for month in newest]
    return record, [
        replace(month, every=-(-count // extent.MOST_JUDGED), is_near=True)
        for month, count in zip(newest, counts, strict=True)
    ]
