"""Tables to figures to one self-contained HTML file.

Computes no metric and fits nothing: it formats for a person. Never imports `models`, `assets` or `pipelines`.
"""
