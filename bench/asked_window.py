"""The command line of benchmarks on recorded pairs: the data folder, the cluster and the window."""

from __future__ import annotations

import argparse
from pathlib import Path

from models.study.cluster import Study, open_study
from models.study.windows import FIT_EVERY, Window
from traces import clusters, instants
from traces.store.folder import DataFolder


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Make a parser that requires --data, --cluster, --from and --to; `doc` is its help."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--cluster", required=True)
    made.add_argument("--from", dest="first", required=True)
    made.add_argument("--to", dest="until", required=True)
    return made


def opened(given: argparse.Namespace) -> tuple[Study, Window]:
    """Open the cluster's study in the calibrated world, and the window with half-hourly decisions."""
    data = DataFolder(given.data)
    first_s, until_s = (instants.epoch_s(instants.parse(text)) for text in (given.first, given.until))
    study = open_study(data, clusters.resolve(data, cluster=given.cluster), world="calibrated")
    return study, Window(first_s, until_s, FIT_EVERY * study.scenario.decide_every_s)
