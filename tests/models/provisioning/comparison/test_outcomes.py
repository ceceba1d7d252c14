"""Outcomes of policies: the digest of an artifact, and interruption at an overlap that no setting reaches."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from models.provisioning.comparison.outcomes import at_overlap, content_digest
from models.provisioning.policies.reactive import Reactive
from tests.models.generated import queue_table


def test_the_digest_does_not_depend_on_the_order_of_the_manifest() -> None:
    artifact = Reactive().fit(queue_table(), 0)[0]
    other_order = replace(artifact, manifest=dict(reversed(artifact.manifest.items())))
    assert list(other_order.manifest) != list(artifact.manifest)
    assert content_digest(other_order) == content_digest(artifact)
    other_policy = replace(artifact, manifest={**artifact.manifest, "policy": "another"})
    assert content_digest(other_policy) != content_digest(artifact)


def test_an_overlap_that_no_setting_reaches_has_no_interruption_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = at_overlap(np.array([[3.0, 2.0]]), np.array([[0.0, 0.2]]), np.array([4.0]), 0.5)
    assert np.isnan(found).all()
