"""Why an engine is as it is: what `explain` and the page of `report` say of steps, chains and changes."""
