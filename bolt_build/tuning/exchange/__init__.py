"""Files that the driver reads and writes: the bundle, tables of engines, results."""
