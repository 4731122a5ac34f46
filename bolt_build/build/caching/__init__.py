"""The local cache: outputs of tasks by the digest of what they were made from."""
