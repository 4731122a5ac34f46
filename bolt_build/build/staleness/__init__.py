"""Whether what a task made is what it would make now, and why not; what it left beside its outputs says so."""
