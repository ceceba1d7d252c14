"""What all assets share: resources, metadata, code versions and freshness policies."""
