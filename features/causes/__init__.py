"""Why a job waits: the causes of waits, and what they are inferred from."""
