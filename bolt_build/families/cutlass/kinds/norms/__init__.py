"""Kinds of products with the normalisation of rows or images, or with the means of images."""
