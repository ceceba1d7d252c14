"""Readers of Microsoft's Philly trace (ATC'19): the job log, the utilization samples, the machine list."""
