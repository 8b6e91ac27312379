"""What was spent of the lines of a data set: by whom, and what each may still take."""
