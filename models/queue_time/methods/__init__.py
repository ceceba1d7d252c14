"""Methods of predicting a wait, one per file; `models.queue_time.registry` names them."""
