"""One of everything that a package can add to bolt-build; see README.md."""
