"""From a tuning set to the driver: glue, kernel units, the tasks that compile them and what fails."""
