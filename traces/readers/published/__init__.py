"""Readers of published traces other than Philly: SWF logs, Helios, Acme, OpenB, Graham."""
