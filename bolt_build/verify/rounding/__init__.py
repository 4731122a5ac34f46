"""What rounding can do to a layer: the variance of its result, operator by operator."""
