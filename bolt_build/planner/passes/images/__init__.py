"""Passes over images and volumes: means, gates, branches, and what moves channels."""
