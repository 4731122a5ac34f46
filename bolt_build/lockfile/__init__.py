"""The lock: a YAML file beside the recipe with the fastest kernels, written by tuning and read by every build."""
