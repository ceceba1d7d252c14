"""Readers of other published traces: SWF logs, Helios, Acme, OpenB, Graham."""
