"""Parts of the report's sections, in files of their own."""
