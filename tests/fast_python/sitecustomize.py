"""Python on a fast clock without libfaketime: `time.time` and `time.sleep`, where PYTHONPATH names this folder.

FAST_PYTHON holds the rate, the simulated time at the beginning and the real one (`tests.live.clock.FastClock`).
"""

import os
import time

rate, epoch, started = map(float, os.environ["FAST_PYTHON"].split())
real_time, real_sleep = time.time, time.sleep
time.time = lambda: epoch + (real_time() - started) * rate
time.sleep = lambda seconds: real_sleep(float(seconds) / rate)
