"""What bolt-build itself is, as staleness sees it: the files that code depends on, and their digests."""
