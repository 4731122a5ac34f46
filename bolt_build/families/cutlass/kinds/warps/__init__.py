"""Kinds of products whose warps multiply each by itself, on every GPU with tensor cores."""
