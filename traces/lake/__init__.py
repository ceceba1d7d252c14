"""The shared lake: Delta tables in a folder or on S3, from which several machines copy. Only here is deltalake used.

The local lake (`traces.store`) stays a working copy, and nothing else reads the shared one.
"""
