"""One method of predicting a wait a file; `models.queue_time.registry` names them."""
