"""Formatting for people: figures, sentences, tables and one self-contained HTML report.

This package computes no metric and fits nothing. It never imports `models`, `assets` or `pipelines`.
"""
